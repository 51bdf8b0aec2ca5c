"""The chart, by real helm, on a whole cluster of this machine (tests/cluster).

    scripts/test chart             all; NO_BUILD=1 takes the images that are there, FAST=1 builds them with the profile `fast`
    scripts/test chart --offline   what needs no cluster: lint, templates, values that must be refused
    scripts/test chart --operations   also what people do with a running release: the command line with more and fewer rights, dashboards, logs,
                                   metrics (scripts/project/in_cluster/operations.py)

Two releases at once, under odd names, in namespaces with Pod Security's profile `restricted`: each serves its own Gateway and Ingress. One is
upgraded from an older chart while requests run, and none may fail. Both are uninstalled, with their Gateways still there: nothing
may be left but CRDs. Brings a cluster up under its own name, and takes it down again (KEEP=1: not). Needs root.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ..cluster import BEGUN, CACHE, KIT, REPOSITORY, echo, fail, fast, kubectl, run_inside, say, status, step, until
from ..in_cluster import operations

CHART = REPOSITORY / "charts/varnish-gateway"
HELM = (REPOSITORY / "scripts/tool", "helm")
OLD, NEW = "previous", "dev"
OPERATIONS = "--operations" in sys.argv

# What users have, before any release and after it.
MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {name: odd-ns, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: blue, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: apps, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: backends}
"""
MANIFESTS += echo("backends")
MANIFESTS += """---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: apps, namespace: backends}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: apps}]
  to: [{group: "", kind: Service}]
"""

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: apps}}
spec:
  gatewayClassName: {name}
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: apps}}
spec:
  parentRefs: [{{name: {name}}}]
  hostnames: [{name}.example.com]
  rules: [{{backendRefs: [{{name: echo, namespace: backends, port: 80}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}, namespace: backends}}
spec:
  ingressClassName: {name}
  rules:
  - host: {name}.ingress.example.com
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: echo, port: {{number: 80}}}}}}}}]}}
"""

# name, namespace, class
ODD = ("4-odd.release", "odd-ns", "varnish")
BLUE = ("blue", "blue", "blue")

TEMPLATES = {
    "defaults": [],
    "everything": [
        "ingressClass.create=true", "ingressClass.default=true", "dashboards.enabled=true", "metrics.podMonitor.enabled=true",
        "metrics.serviceMonitor.enabled=true", "networkPolicy.enabled=true", "operator.replicas=3", "imagePullSecrets[0].name=registry",
        "dataPlane.imagePullSecrets={a,b}", "dataPlane.logLevel=debug", "operator.priorityClassName=system-cluster-critical",
        "gatewayClass.parameters.replicas=2", "gatewayClass.parameters.extraVolumes[0].name=a", "gatewayClass.parameters.extraVolumes[0].emptyDir.medium=Memory",
        "metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=prometheus", "networkPolicy.egress.enabled=true", "operator.extraEnv[0].name=A", "operator.extraEnv[0].value=b", "serviceAccount.name=mine",
    ],
    "another name": ["gatewayClass.name=blue", "metrics.podMonitor.enabled=true", "fullnameOverride=gate"],
    "nothing extra": ["gatewayClass.create=false", "crds.upgrade=false", "cleanUp.enabled=false", "operator.podDisruptionBudget.enabled=false"],
    "some namespaces": ["watchNamespaces={web,shop}", "ingressClass.create=true", "ingressClass.parameters.ingress.namespace=web"],
    "digests": [f"image.digest=sha256:{'a' * 64}", f"dataPlane.image.digest=sha256:{'b' * 64}"],
}
REFUSED = [
    "gatewayClass.name=UPPER", "operator.replicas=-1", "operator.logLevel=loud", "gatewayClass.controllerName=noslash", "nosuch=1",
    "image.digest=sha256:short", "metrics.podMonitor.interval=often", "fullnameOverride=Not_A_Name", "gatewayClass.parameters.replica=2",
    "gatewayClass.parameters.service.kind=NodePort", "metrics.prometheusRule.enable=true", "rbac.userRoles=maybe", "networkPolicy.egress.ports={x}", "gatewayClass.parameters.storage[0].sise=1Gi",
    "watchNamespaces={Web}", "watchNamespaces={web},ingressClass.create=true",
]


def run(*words, input=None, check=True):
    words = [str(word) for word in words]
    done = subprocess.run(words, input=input, capture_output=True, text=True)
    if check and done.returncode != 0:
        fail(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done


def helm(*words, **options):
    return run(*([os.environ["HELM"]] if "HELM" in os.environ else HELM), *words, **options)


def offline():
    helm("lint", "--strict", CHART)
    for what, values in TEMPLATES.items():
        sets = [word for value in values for word in ("--set", value)]
        for release in ("varnish-gateway", ODD[0], "a" * 53):
            text = helm("template", release, CHART, "--namespace", "somewhere", "--kube-version", "1.37.0", "--include-crds", *sets).stdout
            names = re.findall(r"^kind: (\w+)\nmetadata:\n  name: \"?([^\"\n]+)\"?(?:\n  namespace: (\S+))?", text, re.M)
            if len(names) != len(set(names)):
                fail(f"template, {what}: two objects of the same kind and name")
            for kind, name, _ in names:
                if len(name) > 63 and kind in ("Service", "Job", "Deployment", "ServiceAccount"):
                    fail(f"template, {what}: {kind} {name} has more than 63 characters")
                if kind == "Service" and not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
                    fail(f"template, {what}: no Service may be called {name}")
    watched = helm("template", "x", CHART, "--kube-version", "1.37.0", "--set", "watchNamespaces={web,shop}").stdout
    # The people's own roles hold no Secrets; neither does the operator's, but in the namespaces that it watches.
    with_secrets = [part for part in watched.split("\n---\n") if re.search(r"^  - .*\n    resources: \[.*\bsecrets\b", part, re.M)]
    kinds = sorted(re.search(r"^kind: (\w+)\n.*\n.*\n  namespace: (\w+)", part, re.M).groups() for part in with_secrets)
    if kinds != [("Role", "shop"), ("Role", "web")]:
        fail(f"template, watchNamespaces: rights to Secrets are in {kinds}")
    for value in REFUSED:
        if helm("template", "x", CHART, "--kube-version", "1.37.0", "--set", value, check=False).returncode == 0:
            fail(f"--set {value} is not refused")
    say(f"lint, {len(TEMPLATES)} sets of values under 3 release names, {len(REFUSED)} values refused")


class Load:
    """New connections, one after the other, by a thread for each of (address, host)."""

    def __init__(self, *targets):
        self.count, self.failed, self.ended = 0, [], False
        self.threads = [threading.Thread(target=self.run, args=target, daemon=True) for target in targets]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self, address, host):
        while not self.ended:
            answer = status(address, host, timeout=10)
            self.count += 1
            if answer != 200:
                self.failed.append((round(time.monotonic() - BEGUN, 1), host, answer))
            time.sleep(0.01)

    def __exit__(self, *_):
        self.ended = True
        for thread in self.threads:
            thread.join()
        say(f"{self.count} requests, {len(self.failed)} failed")
        if self.failed:
            fail(f"requests failed: {self.failed[:5]}")


def values(release, tag):
    _, _, class_ = release
    more = operations.VALUES[class_] if OPERATIONS else []
    return [word for value in (
        "image.repository=localhost/gateway-operator", f"image.tag={tag}", "image.pullPolicy=Never",
        "dataPlane.image.repository=localhost/gateway-chaperone", f"dataPlane.image.tag={tag}",
        f"gatewayClass.name={class_}", "ingressClass.create=true", "networkPolicy.enabled=true", "dashboards.enabled=true",
        "operator.replicas=2", *more,
    ) for word in ("--set", value)]


def objects():
    """(kind, namespace, name) of everything there is, but what comes and goes by itself."""
    kinds = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if kind not in ("events", "events.events.k8s.io", "componentstatuses", "nodes.metrics.k8s.io", "pods.metrics.k8s.io")]
    listed = kubectl("get", ",".join(kinds), "-A", "--ignore-not-found", "-o", "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name", "--no-headers")
    # A node's Lease comes some seconds after the node.
    return {one for one in map(tuple, map(str.split, listed.splitlines())) if one[1] != "kube-node-lease"}


def programmed(name):
    gateway = json.loads(kubectl("-n", "apps", "get", "gateway", name, "-o", "json"))
    conditions = {c["type"]: c["status"] for c in gateway["status"].get("conditions", [])}
    return conditions.get("Programmed") == "True" and gateway["status"]["addresses"][0]["value"]


def ingress_address(name):
    found = json.loads(kubectl("-n", "backends", "get", "ingress", name, "-o", "json"))["status"].get("loadBalancer", {}).get("ingress", [])
    return found and found[0]["ip"]


def pods(namespace, selector):
    found = json.loads(kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    return {pod["metadata"]["name"]: {c["image"] for c in pod["spec"]["containers"]} for pod in found}


def of_gateway(name):
    return pods("apps", f"gateway.networking.k8s.io/gateway-name={name}")


def serves(release):
    """Gateway and Ingress of a release, asked."""
    _, namespace, class_ = release
    address = until(f"Gateway {class_} programmed", lambda: programmed(class_))
    until(f"Gateway {class_} answers", lambda: status(address, f"{class_}.example.com") == 200)
    ingress = until(f"Ingress {class_} has an address", lambda: ingress_address(class_))
    until(f"Ingress {class_} answers", lambda: status(ingress, f"{class_}.ingress.example.com") == 200)
    return (address, f"{class_}.example.com"), (ingress, f"{class_}.ingress.example.com")


def controllers(name):
    route = json.loads(kubectl("-n", "apps", "get", "httproute", name, "-o", "json"))
    return [parent["controllerName"] for parent in route["status"]["parents"]]


def older_chart(folder):
    """The last release's chart stands for itself: there is none yet, so it is this one, with a lower number."""
    copy = Path(folder) / "varnish-gateway"
    shutil.copytree(CHART, copy)
    chart = copy / "Chart.yaml"
    chart.write_text(re.sub(r"^version: .*", "version: 0.0.1", chart.read_text(), flags=re.M))
    return Path(re.search(r"saved it to: (.*)", helm("package", copy, "--destination", folder).stdout)[1])


def inside():
    kubectl("apply", "-f", "-", input=MANIFESTS)
    for _, _, class_ in (ODD, BLUE):
        kubectl("apply", "-f", "-", input=GATEWAY.format(name=class_))
    if OPERATIONS:
        kubectl("apply", "-f", "-", input=operations.people("vg-4-odd-release-varnish-gateway-odd-ns-status", f"localhost/gateway-chaperone:{NEW}"))
    kubectl("-n", "backends", "rollout", "status", "deploy/echo", "--timeout=180s")
    before = objects()

    with tempfile.TemporaryDirectory() as folder:
        name, namespace, _ = ODD
        helm("install", name, older_chart(folder), "--namespace", namespace, *values(ODD, OLD), "--wait", "--timeout", "300s")
    say(f"{name} installed from an older chart, {OLD} images, in {namespace} (restricted)")
    name, namespace, _ = BLUE
    helm("install", name, CHART, "--namespace", namespace, *values(BLUE, NEW), "--wait", "--timeout", "300s")
    say(f"{name} installed beside it")
    odd, blue = serves(ODD), serves(BLUE)
    say("each serves its own Gateway and its own Ingress")

    if (controllers("varnish"), controllers("blue")) != (["varnish-software.com/gateway"], ["varnish-software.com/blue"]):
        fail(f"parents of routes: {controllers('varnish')}, {controllers('blue')}")
    if OPERATIONS:
        operations.check(sys.modules[__name__], odd[0], blue[0], ODD[1])
    theirs = of_gateway("blue")
    with Load(*odd, *blue):
        say(f"{ODD[0]}: helm upgrade to this chart and {NEW} images")
        helm("upgrade", ODD[0], CHART, "--namespace", ODD[1], *values(ODD, NEW), "--wait", "--timeout", "300s")
        new = {f"localhost/gateway-chaperone:{NEW}"}
        until("the Gateway's pods are new", lambda: all(images == new for images in of_gateway("varnish").values()))
        made = "gateway.networking.k8s.io/gateway-name=varnish"
        until("the IngressClass's pods are new", lambda: all(images == new for images in pods(ODD[1], made).values()))
    if of_gateway("blue") != theirs:
        fail("pods of the other release changed")
    crd = json.loads(kubectl("get", "crd", "varnishcachepolicies.gateway.varnish-software.com", "-o", "json"))
    if "gateway.varnish-software.com/release" not in crd["metadata"]["annotations"]:
        fail("helm upgrade left the CRDs as they were")
    say("operator, pods and CRDs are upgraded")

    with Load(*odd):
        helm("uninstall", BLUE[0], "--namespace", BLUE[1], "--wait", "--timeout", "300s")
        until("its pods are gone", lambda: not of_gateway("blue"))
        left = kubectl("get", "all,configmaps,secrets,rolebindings,roles,serviceaccounts,pdb", "-A", "-l", "gateway.varnish-software.com/controller", "-o", "name", "--ignore-not-found")
        if left.strip():
            fail(f"helm uninstall {BLUE[0]} left {left.split()}")
        if not of_gateway("varnish"):
            fail(f"helm uninstall {BLUE[0]} took pods of {ODD[0]} along")
    say(f"{BLUE[0]} is uninstalled, and {ODD[0]} did not notice")
    helm("uninstall", ODD[0], "--namespace", ODD[1], "--wait", "--timeout", "300s")

    def left():
        # The API server itself makes an APIService for the group of our CRDs.
        stays = lambda one: one[0] in ("CustomResourceDefinition", "APIService") and one[2].endswith(".gateway.varnish-software.com")  # noqa: E731
        return sorted(one for one in objects() - before if not stays(one))

    end = time.monotonic() + 180
    while left() and time.monotonic() < end:
        time.sleep(1)
    if left():
        fail(f"helm uninstall left {left()}")
    if gone := sorted(before - objects()):
        fail(f"helm uninstall took along what was there before: {gone}")
    say("nothing is left but CRDs; what users made is untouched")
    kubectl("-n", "apps", "delete", "gateways", "--all", "--timeout=120s")
    say("Gateways can be deleted")


def load_images():
    for image in ("gateway-operator", "gateway-chaperone"):
        step(KIT / "load-image", CACHE / f"gateway/{image}.tar")
        # The same bytes under another name: an upgrade replaces every pod all the same.
        step(KIT / "exec", "ctr", "-n", "k8s.io", "images", "tag", "--force", f"localhost/{image}:{NEW}", f"localhost/{image}:{OLD}")


def main():
    if "--inside" in sys.argv:
        return inside()
    os.environ["HELM"] = run(*HELM, "--path").stdout.strip()
    offline()
    if "--offline" in sys.argv:
        return 0
    images = None if os.environ.get("NO_BUILD") else fast()
    return run_inside("chart", "scripts/test", "chart", "--inside", *sys.argv[1:], images=images, prepare=load_images).returncode
