"""Each scenario is a function; it says what it saw, and raises where that is wrong. Runs inside of the cluster's network."""

import base64
import collections
import http.client
import json
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

from . import kube

NAMESPACE = "ingress-test"
CLASS = "varnish-test"
PATIENCE = 120
api = kube.Api()


def until(what, found):
    end, last = time.monotonic() + PATIENCE, None
    while time.monotonic() < end:
        try:
            last = found()
            if last:
                return last
        except (OSError, http.client.HTTPException, kube.Refused) as error:
            last = error
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {PATIENCE} s ({last})")


def create(path, body):
    return api.create(path, body)


def echo(name, replicas):
    container = {"name": "echo", "image": "localhost/echo-basic:1", "imagePullPolicy": "Never"}
    container["env"] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    container["readinessProbe"] = {"httpGet": {"path": "/", "port": 3000}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 30}
    container["resources"] = {"requests": {"cpu": "5m", "memory": "10Mi"}}
    labels = {"app": name}
    create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    })  # fmt: skip
    create(f"/api/v1/namespaces/{NAMESPACE}/services", {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"name": "web", "port": 80, "targetPort": 3000}]},
    })  # fmt: skip


def backend(service, port=None):
    return {"service": {"name": service, "port": port or {"number": 80}}}


def ingress(name, rules=(), default=None, tls=None, ingress_class=CLASS):
    def rule(host, paths):
        listed = [{"path": path, "pathType": kind, "backend": to} for path, kind, to in paths]
        return {"host": host, "http": {"paths": listed}}

    spec = {"ingressClassName": ingress_class}
    if rules:
        spec["rules"] = [rule(host, paths) for host, paths in rules]
    if default:
        spec["defaultBackend"] = default
    if tls:
        spec["tls"] = tls
    create(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses",
           {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": spec})  # fmt: skip


def delete(name):
    api.call("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses/{name}")


def points(name):
    found = api.call("GET", f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses/{name}")
    return found.get("status", {}).get("loadBalancer", {}).get("ingress", [])


def events(name):
    listed = api.call("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    return [(one["reason"], one.get("note", "")) for one in listed if one["regarding"].get("name") == name]


def ask(host, path="/", connection=None):
    connection = connection or http.client.HTTPConnection(ADDRESS, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read()
    pod = json.loads(text).get("pod", "") if answer.status == 200 else ""
    connection.close()
    return answer.status, pod


def serves(host, path, service):
    status, pod = ask(host, path)
    return status == 200 and pod.startswith(service + "-")


def nothing_is_503():
    status = until("503 without any Ingress", lambda: ask("any.example")[0] == 503)
    assert status


def default_backend():
    ingress("default", default=backend("tea"))
    until("the default backend", lambda: serves("whatever.example", "/some/path", "tea"))
    until("an address in status", lambda: points("default") == [{"ip": ADDRESS}])
    until("an Event", lambda: any(reason == "Accepted" for reason, _ in events("default")))
    ingress("second-default", default=backend("coffee"))
    until("an Event with the other's name", lambda: any(reason == "Rejected" and f"{NAMESPACE}/default" in note for reason, note in events("second-default")))
    assert points("second-default") == []
    delete("default")
    until("the second is taken in", lambda: serves("whatever.example", "/", "coffee"))
    delete("second-default")
    nothing_is_503()


def host_rules():
    folder = Path(tempfile.mkdtemp())
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=foo.bar.com",
         "-addext", "subjectAltName=DNS:foo.bar.com", "-keyout", folder / "key", "-out", folder / "crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    encoded = {f"tls.{name}": base64.b64encode((folder / name).read_bytes()).decode() for name in ("crt", "key")}
    create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "conformance-tls"}, "data": encoded})
    rules = [("*.foo.com", [("/", "Prefix", backend("tea", {"name": "web"}))]), ("foo.bar.com", [("/", "Prefix", backend("coffee"))])]
    ingress("hosts", rules, tls=[{"hosts": ["foo.bar.com"], "secretName": "conformance-tls"}])
    until("a host of the wildcard", lambda: serves("bar.foo.com", "/", "tea"))
    until("an exact host", lambda: serves("foo.bar.com", "/", "coffee"))
    for host in ("baz.bar.foo.com", "foo.com", "bar.com"):
        assert ask(host)[0] == 404, host

    def by_tls():
        context = ssl.create_default_context(cafile=str(folder / "crt"))
        raw = socket.create_connection((ADDRESS, 443), timeout=30)
        connection = http.client.HTTPConnection("foo.bar.com")
        connection.sock = context.wrap_socket(raw, server_hostname="foo.bar.com")
        status, pod = ask("foo.bar.com", "/", connection)
        return status == 200 and pod.startswith("coffee-")

    until("HTTPS with the right certificate", by_tls)
    delete("hosts")


def classes():
    rules = [("class.example", [("/", "Prefix", backend("tea"))])]
    ingress("of-another", rules, ingress_class="some-invalid-class-name")
    time.sleep(3)
    assert points("of-another") == [] and events("of-another") == []
    assert ask("class.example")[0] != 200
    delete("of-another")


def load_balancing():
    echo("ten", 10)
    ingress("ten", [("ten.example", [("/", "Prefix", backend("ten"))])])

    def all_pods():
        return len({ask("ten.example", f"/{n}")[1] for n in range(40)} - {""}) == 10

    until("ten pods answer", all_pods)

    def evenly():
        # A pod that was not ready for a moment gets fewer.
        seen = collections.Counter(ask("ten.example", f"/x{n}")[1] for n in range(100))
        return len(seen) == 10 and min(seen.values()) >= 8

    assert any(evenly() for _ in range(3)), "a hundred requests are not spread evenly"
    delete("ten")
    api.call("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/ten?propagationPolicy=Background")


def paths():
    cases = [
        ("Exact", "/foo", "/foo", True), ("Exact", "/foo", "/bar", False), ("Exact", "/foo", "/foo/", False),
        ("Exact", "/foo/", "/foo", False), ("Exact", "/foo", "/FOO", False), ("Prefix", "/", "/any/path", True),
        ("Prefix", "/foo", "/foo", True), ("Prefix", "/foo", "/foo/", True), ("Prefix", "/foo/", "/foo", True),
        ("Prefix", "/foo/", "/foo/bar", True), ("Prefix", "/aaa/bb", "/aaa/bbb", False), ("Prefix", "/aaa/bbb", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", True), ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", True), ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", False),
        ("ImplementationSpecific", "/foo", "/foo/bar", True),
    ]  # fmt: skip
    rules = [(f"case-{n}.example", [(path, kind, backend("tea"))]) for n, (kind, path, _, _) in enumerate(cases)]
    ingress("paths", rules)
    until("the first case", lambda: serves("case-0.example", "/foo", "tea"))
    for n, (kind, path, asked, matches) in enumerate(cases):
        status = ask(f"case-{n}.example", asked)[0]
        assert status == (200 if matches else 404), (kind, path, asked, status)
    delete("paths")


def made_and_gone():
    """Last: the Varnish goes with its class."""
    api.call("DELETE", f"/apis/networking.k8s.io/v1/ingressclasses/{CLASS}")

    def gone():
        try:
            api.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{CLASS}")
            return False
        except kube.Refused:
            return True

    until("the Varnish goes with its class", gone)


def prepare():
    create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    create("/apis/gateway.varnish-software.com/v1alpha1/gatewayclassparameters", {
        "apiVersion": "gateway.varnish-software.com/v1alpha1", "kind": "GatewayClassParameters",
        "metadata": {"name": CLASS}, "spec": {"ingress": {"namespace": NAMESPACE}},
    })  # fmt: skip
    create("/apis/networking.k8s.io/v1/ingressclasses", {
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": CLASS},
        "spec": {"controller": "varnish-software.com/ingress",
                 "parameters": {"apiGroup": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": CLASS}},
    })  # fmt: skip
    echo("tea", 1)
    echo("coffee", 1)

    def address():
        service = api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/services/{CLASS}")
        found = service.get("status", {}).get("loadBalancer", {}).get("ingress", [])
        return found and found[0].get("ip")

    return until("the Varnish Service has an address", address)


def main():
    global ADDRESS
    ADDRESS = prepare()
    print(f"Varnish Service at {ADDRESS}", flush=True)
    for scenario in (nothing_is_503, default_backend, host_rules, classes, load_balancing, paths, made_and_gone):
        begun = time.monotonic()
        scenario()
        print(f"ok  {scenario.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
