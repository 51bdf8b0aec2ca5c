"""A Gateway with three pods and a cached route, in a cluster of this machine."""

import http.client
import json
import os
import subprocess
import tempfile
from pathlib import Path

from ..cluster import REPOSITORY, echo, kubectl, say, until

NAMESPACE = "invalidation"
HOST = "shop.example.com"

MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {name: invalidation}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: three, namespace: invalidation}
spec: {replicas: 3}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: invalidation}
spec:
  gatewayClassName: varnish
  listeners: [{name: http, port: 80, protocol: HTTP}]
  infrastructure:
    parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: three}
"""
MANIFESTS += echo("invalidation")
MANIFESTS += """---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: echo, namespace: invalidation}
spec:
  parentRefs: [{name: gw}]
  rules: [{backendRefs: [{name: echo, port: 80}]}]
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: echo, namespace: invalidation}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: echo}
  forcedTTL: 1h
"""


def get(kind, name=None):
    words = ["-n", NAMESPACE, "get", kind, *([name] if name else []), "-o", "json"]
    return json.loads(kubectl(*words))


def ready(pod):
    conditions = pod["status"].get("conditions", [])
    going = "deletionTimestamp" in pod["metadata"]
    return not going and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def pods():
    """Ready ones, by name: their addresses."""
    words = ["-n", NAMESPACE, "get", "pods", "-l", "gateway.networking.k8s.io/gateway-name=gw", "-o", "json"]
    return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in json.loads(kubectl(*words))["items"] if ready(pod)}


def cache(address, url="/"):
    """What the cache of one pod did."""
    connection = http.client.HTTPConnection(address, 80, timeout=30)
    try:
        connection.request("GET", url, headers={"Host": HOST})
        answer = connection.getresponse()
        answer.read()
        return answer.getheader("X-Cache")
    except (OSError, http.client.HTTPException) as e:
        return repr(e)
    finally:
        connection.close()


def write(address, url):
    """The status of a POST through one pod."""
    connection = http.client.HTTPConnection(address, 80, timeout=30)
    try:
        connection.request("POST", url, body=b"x", headers={"Host": HOST})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def warm(addresses, url="/"):
    for address in addresses:
        until(f"{url} is cached at {address}", lambda: cache(address, url) == "HIT")


def manifest(name, **spec):
    body = {"gatewayRef": {"name": "gw"}, "type": "Purge", "hostname": HOST, "paths": ["/"], **spec}
    return json.dumps({
        "apiVersion": "gateway.varnish-software.com/v1alpha1",
        "kind": "VarnishCacheInvalidation",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {key: value for key, value in body.items() if value is not None},
    })


def create(name, **spec):
    kubectl("create", "-f", "-", input=manifest(name, **spec))


def phase(name):
    return get("vcinv", name).get("status", {}).get("phase")


def ended(name, patience=60):
    return until(f"{name} is over", lambda: phase(name) in ("Complete", "Failed") and get("vcinv", name)["status"], patience)


def command(*words):
    """`varnish-gateway …` with kubectl's credentials: its exit code, and what it prints."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    built = [target / profile / "varnish-gateway" for profile in ("release", "debug")]
    built = [program for program in built if program.exists()]
    if not built:
        raise SystemExit("there is no target/debug/varnish-gateway: cargo build --workspace")
    program = max(built, key=lambda program: program.stat().st_mtime)
    with tempfile.TemporaryDirectory() as nowhere:
        # No `serve` of this machine may be found.
        done = subprocess.run([str(program), *words], capture_output=True, text=True, env={**os.environ, "TMPDIR": nowhere})
    return done.returncode, done.stdout + done.stderr


def begin():
    """Three pods that serve."""
    kubectl("apply", "-f", "-", input=MANIFESTS)
    until("three pods", lambda: len(pods()) == 3)
    for address in pods().values():
        until("they serve", lambda: cache(address) in ("HIT", "MISS"))
    say("three pods serve")
