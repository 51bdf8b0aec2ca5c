"""The API server over one connection a thread, and the objects of the benchmark."""

import base64
import http.client
import json
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

NAMESPACE = "bench"
GATEWAY = "bench"
GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"


class Refused(RuntimeError):
    """The API server said no."""


class Api:
    """The user that KUBECONFIG names."""

    def __init__(self):
        view = subprocess.run(["kubectl", "config", "view", "--raw", "--minify", "-o", "json"], capture_output=True, check=True)
        config = json.loads(view.stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host = urllib.parse.urlparse(cluster["server"]).netloc
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
            pem.flush()
            self.tls.load_cert_chain(pem.name)
        self.local = threading.local()

    def call(self, method, path, body=None):
        # The API server ends connections that rest; one that it has just ended would look like a failure.
        if time.monotonic() - getattr(self.local, "used", 0) > 15:
            self.local.connection = http.client.HTTPSConnection(self.host, context=self.tls, timeout=60)
        self.local.used = time.monotonic()
        connection = self.local.connection
        sent = json.dumps(body) if body is not None else None
        connection.request(method, path, sent, {"Content-Type": "application/json", "Accept": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise Refused(f"{method} {path}: {answer.status} {text[:300].decode(errors='replace')}")
        return json.loads(text)

    def create(self, path, body):
        return self.call("POST", path, body)


def namespace():
    return "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def origin():
    """Two Pods of the suite's echo server behind one Service."""
    labels = {"app": "echo"}
    container = {"name": "echo", "image": "localhost/echo-basic:1", "imagePullPolicy": "Never"}
    container["env"] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["readinessProbe"] = {"httpGet": {"path": "/", "port": 3000}, "periodSeconds": 1}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "echo"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "echo"},
        "spec": {"selector": labels, "ports": [{"port": 8080, "targetPort": 3000}]},
    }
    yield f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment
    yield f"/api/v1/namespaces/{NAMESPACE}/services", service


def gateway():
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": GATEWAY},
        "spec": {"gatewayClassName": "varnish", "listeners": [listener]},
    }
    return f"{GATEWAY_API}/namespaces/{NAMESPACE}/gateways", body


def host(number):
    """Ten routes share a host, each with a path of its own."""
    return f"h{number // 10}.example.com", f"/r{number}"


def route(name, hostname, path):
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": GATEWAY}],
            "hostnames": [hostname],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": path}}],
                    "backendRefs": [{"name": "echo", "port": 8080}],
                }
            ],
        },
    }
    return f"{GATEWAY_API}/namespaces/{NAMESPACE}/httproutes", body


def address(api, patience=180):
    """Of the Gateway, once it is programmed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        status = api.call("GET", f"{GATEWAY_API}/namespaces/{NAMESPACE}/gateways/{GATEWAY}").get("status", {})
        true = {one["type"] for one in status.get("conditions", []) if one["status"] == "True"}
        if "Programmed" in true and status.get("addresses"):
            return status["addresses"][0]["value"]
        time.sleep(0.2)
    raise RuntimeError(f"the Gateway was not programmed within {patience} s: {json.dumps(status)}")


def create_routes(api, numbers):
    return create_all(api, [route(f"r{number:05}", *host(number)) for number in numbers])


def create_all(api, objects, threads=8):
    """Many objects, each a path and a body, side by side; seconds that it took."""
    begun, objects = time.monotonic(), iter(objects)
    lock, failed = threading.Lock(), []

    def work():
        while not failed:
            with lock:
                one = next(objects, None)
            if one is None:
                return
            try:
                api.create(*one)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise RuntimeError(f"objects could not be created: {failed[0]}")
    return time.monotonic() - begun
