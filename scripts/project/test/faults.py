"""Faults on a whole cluster of this machine (tests/cluster), under load: no request may fail.

    scripts/test faults            all
    scripts/test faults --engines  instead: pods with Varnish Cache 7 become pods with Vinyl Cache 9, and back (`make test-engine-upgrade`)
    … --no-build                   take the images that are there

Brings a cluster up under its own name, and takes it down again (KEEP=1: not). Needs root.
"""

import http.client
import json
import os
import secrets
import subprocess
import sys
import threading
import time

from ..cluster import BEGUN, KIT, echo, fast, kubectl, run_inside, say, status, until

MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {name: faults}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: faults}
spec:
  gatewayClassName: varnish
  listeners:
  - {name: http, port: 80, protocol: HTTP}
"""
MANIFESTS += echo("faults", replicas=2)

PARAMETERS = """
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: other, namespace: faults}
spec: {varnishdExtraArgs: [-p, thread_pool_min=50]}
"""

# The default image, then the other engine: GatewayClassParameters of the Gateway itself.
ENGINE = """
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: other, namespace: faults}}
spec: {{engine: {engine}}}
"""

POLICY = """
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: cached, namespace: faults}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: cached}
  forcedTTL: 2s
"""

ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: faults}}
spec:
  parentRefs: [{{name: gw}}]
  hostnames: [{name}.example.com]
  rules: [{{backendRefs: [{{name: echo, port: 80}}]}}]
"""


class Load:
    """New connections, one after the other, by two threads."""

    def __init__(self, address, host):
        self.address, self.host = address, host
        self.count, self.failed, self.ended = 0, [], False
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(2)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self):
        while not self.ended:
            answer = status(self.address, self.host, timeout=10)
            self.count += 1
            if answer != 200:
                self.failed.append((round(time.monotonic() - BEGUN, 1), answer))
            time.sleep(0.01)

    def __exit__(self, *_):
        self.ended = True
        for thread in self.threads:
            thread.join()
        say(f"{self.count} requests, {len(self.failed)} failed")
        if self.failed:
            raise SystemExit(f"test-faults: requests failed: {self.failed[:5]}")


def component(name, action):
    subprocess.run([str(KIT / "component"), name, action], check=True)


def pods():
    return json.loads(kubectl("-n", "faults", "get", "pods", "-l", "gateway.networking.k8s.io/gateway-name=gw", "-o", "json"))["items"]


def programmed():
    gateway = json.loads(kubectl("-n", "faults", "get", "gateway", "gw", "-o", "json"))
    conditions = {c["type"]: c for c in gateway["status"].get("conditions", [])}
    found = conditions.get("Programmed", {})
    good = found.get("status") == "True" and found.get("observedGeneration") == gateway["metadata"]["generation"]
    return good and gateway["status"]["addresses"][0]["value"]


def large(count=600):
    """HTTPRoutes with names that hardly compress; one host of each."""
    items, hosts = [], []
    for number in range(count):
        names = [f"{'.'.join(secrets.token_hex(29) for _ in range(3))}.x{number}.example.com" for _ in range(16)]
        hosts.append(names[0])
        items.append({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": f"large-{number}", "namespace": "faults"},
            "spec": {
                "parentRefs": [{"name": "gw"}],
                "hostnames": names,
                "rules": [{"backendRefs": [{"name": "echo", "port": 80}]}],
            },
        })
    kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return hosts


def shards():
    label = "gateway.varnish-software.com/routing-shard"
    return sorted(kubectl("-n", "faults", "get", "configmaps", "-l", label, "-o", "jsonpath={.items[*].metadata.name}").split())


def index():
    config = json.loads(kubectl("-n", "faults", "get", "configmap", "gw-vcl", "-o", "json"))
    return sorted(json.loads(config["data"].get("routing.index.json", "{}")).get("shards", []))


def leader():
    return kubectl("-n", "varnish-gateway-system", "get", "lease", "varnish-gateway-operator", "-o", "jsonpath={.spec.holderIdentity}")


def rolled(old):
    now = {pod["metadata"]["name"] for pod in pods()}
    return now and not now & old


def inside():
    kubectl("apply", "-f", "-", input=MANIFESTS)
    kubectl("apply", "-f", "-", input=ROUTE.format(name="one"))
    address = until("Gateway programmed", programmed)
    until("first answer", lambda: status(address, "one.example.com") == 200)
    say(f"Gateway serves at {address}")

    with Load(address, "one.example.com"):
        say("a listener more: no pod is rolled")
        old = {pod["metadata"]["name"] for pod in pods()}
        patch = [{"op": "add", "path": "/spec/listeners/-", "value": {"name": "more", "port": 8080, "protocol": "HTTP"}}]
        kubectl("-n", "faults", "patch", "gateway", "gw", "--type=json", "-p", json.dumps(patch))
        until("the new port answers", lambda: status(address, "one.example.com", 8080) == 200)
        if old != {pod["metadata"]["name"] for pod in pods()}:
            raise SystemExit("test-faults: a listener more has rolled the pods")

    with Load(address, "one.example.com"):
        say("other arguments of varnishd: pods are rolled")
        kubectl("apply", "-f", "-", input=PARAMETERS)
        reference = {"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": "other"}
        patch = {"spec": {"infrastructure": {"parametersRef": reference}}}
        kubectl("-n", "faults", "patch", "gateway", "gw", "--type=merge", "-p", json.dumps(patch))
        until("old pods gone", lambda: rolled(old))
        until("programmed again", programmed)

    with Load(address, "one.example.com"):
        say("two more pods, then one: pods end while they serve")
        kubectl("-n", "faults", "scale", "deploy/gw", "--replicas=3")
        until("three pods", lambda: len([p for p in pods() if ready(p)]) == 3)
        kubectl("-n", "faults", "scale", "deploy/gw", "--replicas=1")
        until("one pod", lambda: len(pods()) == 1)

    with Load(address, "one.example.com"):
        say("no API server for 60 seconds")
        component("apiserver", "stop")
        time.sleep(60)
        component("apiserver", "start")
        until("API server", lambda: kubectl("get", "ns", check=False))
        begun = time.monotonic()
        until("route created", lambda: kubectl("apply", "-f", "-", input=ROUTE.format(name="two"), check=False))
        until("a route made afterwards answers", lambda: status(address, "two.example.com") == 200)
        say(f"a route made afterwards answers {time.monotonic() - begun:.1f} s later")

    say("the container dies while the API server is away")
    pod = pods()[0]["metadata"]["name"]
    component("apiserver", "stop")
    pids = subprocess.run(["pgrep", "-f", "varnish-gateway chaperone"], capture_output=True, text=True).stdout.split()
    subprocess.run(["kill", "-9", *pids], check=True)
    until("it is down", lambda: status(address, "one.example.com") != 200, 30)
    until("it serves the last configuration", lambda: status(address, "two.example.com") == 200)
    say("it serves the last configuration again, without an API server")
    component("apiserver", "start")
    until("API server", lambda: kubectl("get", "ns", check=False))
    until("route created", lambda: kubectl("apply", "-f", "-", input=ROUTE.format(name="three"), check=False))
    until("a new route answers", lambda: status(address, "three.example.com") == 200)
    assert pods()[0]["metadata"]["name"] == pod, "the pod is another one"

    say("operator killed")
    old, begun = leader(), time.monotonic()
    kubectl("-n", "varnish-gateway-system", "delete", "pod", "--all", "--grace-period=0", "--force")
    until("another operator leads", lambda: leader() not in ("", old))
    say(f"another one leads {time.monotonic() - begun:.1f} s later")
    kubectl("apply", "-f", "-", input=ROUTE.format(name="four"))
    until("a new route answers", lambda: status(address, "four.example.com") == 200)

    say("routes that do not fit into one ConfigMap")
    hosts = large()
    until("the last of them answers", lambda: status(address, hosts[-1]) == 200)
    until("the first of them, too", lambda: status(address, hosts[0]) == 200)
    until("they are spread", lambda: len(shards()) > 1 and index() == shards())
    say(f"they are spread over {len(shards())} ConfigMaps, and old ones are gone")

    kubectl("delete", "namespace", "faults", "--timeout=240s")
    left = kubectl("get", "rolebindings,secrets,configmaps,deployments,services", "-A", "-l", "app.kubernetes.io/managed-by=varnish-gateway")
    assert not left.strip(), left
    say("nothing is left")


def served_by():
    """What the Gateway's status says about the engines of its pods."""
    if not programmed():
        return ""
    conditions = json.loads(kubectl("-n", "faults", "get", "gateway", "gw", "-o", "json"))["status"]["conditions"]
    return next(one["message"] for one in conditions if one["type"] == "Programmed")


def engines():
    """Zero failed requests, cached and uncached ones, while all pods change their engine."""
    reference = {"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": "other"}
    kubectl("apply", "-f", "-", input=MANIFESTS)
    kubectl("apply", "-f", "-", input=ENGINE.format(engine="varnish-7"))
    kubectl("-n", "faults", "patch", "gateway", "gw", "--type=merge", "-p", json.dumps({"spec": {"infrastructure": {"parametersRef": reference}}}))
    for name in ("cached", "uncached"):
        kubectl("apply", "-f", "-", input=ROUTE.format(name=name))
    kubectl("apply", "-f", "-", input=POLICY)
    address = until("Gateway programmed", programmed)
    for name in ("cached", "uncached"):
        until("first answer", lambda: status(address, f"{name}.example.com") == 200)
    until("the cache answers", lambda: "hit" in header(address, "cached.example.com", "X-Cache").lower())
    until("the status names Varnish Cache", lambda: "Varnish Cache 7" in served_by())
    say(f"Gateway serves at {address}: {served_by()}")
    for engine, product in (("vinyl-9", "Vinyl Cache 9"), ("varnish-7", "Varnish Cache 7")):
        old = {pod["metadata"]["name"] for pod in pods()}
        with Load(address, "cached.example.com"), Load(address, "uncached.example.com"):
            say(f"engine: {engine}")
            kubectl("apply", "-f", "-", input=ENGINE.format(engine=engine))
            until("old pods gone", lambda: rolled(old))
            until(f"the status names {product} alone", lambda: served_by().count("Cache") == 1 and product in served_by())
            until("the cache answers", lambda: "hit" in header(address, "cached.example.com", "X-Cache").lower())
        say(served_by())


def header(address, host, name):
    connection = http.client.HTTPConnection(address, 80, timeout=10)
    try:
        connection.request("GET", "/", headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.headers.get(name) or ""
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def main():
    if "--inside" in sys.argv:
        return engines() if "--engines" in sys.argv else inside()
    more = ["--engine", "vinyl-9"] if "--engines" in sys.argv else []
    if more:
        os.environ["VINYL"] = "1"
    images = None if "--no-build" in sys.argv else [*fast(), *more]
    return run_inside("faults", "scripts/test", "faults", "--inside", *sys.argv[1:], images=images).returncode
