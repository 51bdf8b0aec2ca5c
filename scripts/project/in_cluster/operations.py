"""What people do with a running release: the command line with more and with fewer rights, dashboards by port-forward, logs, metrics.

Part of scripts/test chart, whose own tools are `t`.
"""

import contextlib
import http.client
import json
import re
import statistics
import subprocess
import threading
import time
import urllib.parse

# A reader with the role that the chart brings, and a user who may read one namespace with the role `view`.
PEOPLE = """
apiVersion: v1
kind: Namespace
metadata: {{name: people, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: reader-of-gateways}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: people}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: visitor, namespace: apps}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}
subjects: [{{kind: ServiceAccount, name: visitor, namespace: people}}]
"""
PERSON = """
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: people}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: people}}
spec:
  serviceAccountName: {name}
  terminationGracePeriodSeconds: 0
  securityContext: {{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: cli
    image: {image}
    imagePullPolicy: Never
    command: [sleep, "3600"]
    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"""
STUCK = """
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: stuck}
spec: {image: "localhost/no-such-image:1"}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: stuck, namespace: apps}
spec:
  gatewayClassName: varnish
  infrastructure: {parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: stuck}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""


# Of the releases, by class.
VALUES = {
    "varnish": ["gatewayClass.parameters.logging.mode=varnishlog-json", "gatewayClass.parameters.replicas=2"],
    "blue": [
        "gatewayClass.parameters.logging.mode=varnishlog-json", "gatewayClass.parameters.logging.queryStrings=true",
        "gatewayClass.parameters.dashboard.allowActions=true", "ingressClass.parameters.dashboard.enabled=false",
    ],
}  # fmt: skip


def people(role, image):
    """Manifests; made before anything is counted."""
    return PEOPLE.format(role=role) + "".join(PERSON.format(name=name, image=image) for name in ("reader", "visitor"))


def cli(who, *words):
    """(exit code, standard output, standard error) of our program, in the pod of a user."""
    done = subprocess.run(["kubectl", "-n", "people", "exec", who, "--", "varnish-gateway", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def expect(t, what, found, *wanted):
    for one in wanted:
        if one not in found:
            t.fail(f"{what}: `{one}` is missing in\n{found}")


def status(t, gateways):
    """All is well: every Gateway, its pods, its address."""
    for who in ("reader", "visitor"):
        t.until(f"pod {who} runs", lambda who=who: cli(who, "--version")[0] == 0)
    code, text, said = cli("reader", "status", "-A", "--output", "json")
    if code != 0:
        t.fail(f"status -A ended with {code}: {said}{text}")
    found = {one["name"]: one for one in json.loads(text)["gateways"]}
    if set(found) != set(gateways):
        t.fail(f"status -A knows {sorted(found)}, and there are {sorted(gateways)}")
    for name, one in found.items():
        good = one["serving"] and one["pods"] and all(pod["current"] and pod["ready"] for pod in one["pods"])
        if not good or not one["addresses"] or not all(listener.get("address") for listener in one["listeners"]):
            t.fail(f"status -A of {name}: {one}")
    _, text, _ = cli("reader", "status", "-A")
    expect(t, "status -A", text, "GATEWAY", "OPEN AT", "HTTPRoute apps/blue, rule 0", "Ingress backends/varnish", "blue.example.com")
    code, text, _ = cli("reader", "explain", "-A", "--host", "blue.example.com", "--path", "/x")
    expect(t, "explain -A", text, "route: HTTPRoute apps/blue, rule 0", "from backends/echo:80")
    code, text, _ = cli("reader", "status", "-n", "people")
    expect(t, "status in an empty namespace", text, "No Gateway of ours is in namespace people")
    text = t.kubectl("-n", "apps", "exec", "deploy/varnish", "--", "varnish-gateway", "status")
    expect(t, "status inside of a pod", text, "apps/varnish", "serving")
    t.say("status and explain: every Gateway of the cluster, by the chart's own role; one pod by itself")


def rights(t):
    """What may not be seen is named."""
    code, text, said = cli("visitor", "status", "-A")
    if code != 1 or text:
        t.fail(f"status -A without rights ended with {code}: {text}")
    expect(t, "status -A without rights", said, 'cannot list resource "configmaps"', "ask for this right")
    code, text, said = cli("visitor", "status", "-n", "apps")
    expect(t, "status with `view` alone", text + said, "apps/varnish", "Gateways cannot be listed")
    code, _, said = cli("visitor", "top", "-n", "apps")
    if code != 1:
        t.fail(f"top without pods/proxy ended with {code}")
    expect(t, "top without pods/proxy", said, "the right to get pods/proxy in namespace apps")
    can = t.kubectl("auth", "can-i", "list", "varnishcachepolicies.gateway.varnish-software.com", "-n", "apps", "--as=system:serviceaccount:people:visitor")
    expect(t, "view sees our kinds", can, "yes")
    t.say("rights that are missing are named")


def stuck(t):
    """A pod that does not start says why."""
    t.kubectl("apply", "-f", "-", input=STUCK)

    def told():
        code, text, _ = cli("reader", "status", "-n", "apps", "--gateway", "stuck")
        return code == 1 and "ErrImagePull" in text or "ImagePullBackOff" in text

    t.until("status says why the pod of Gateway stuck does not start", told)
    _, text, _ = cli("reader", "top", "-n", "apps", "--gateway", "stuck", "--interval", "1")
    expect(t, "top of a Gateway without pods", text, "Gateway apps/stuck: none of its pods is ready")
    t.kubectl("delete", "--timeout=60s", "-f", "-", input=STUCK)
    t.say("a pod that does not start says why in status")


def top(t, target):
    """Numbers are those of requests, while a pod goes and another comes."""
    rates = []
    with t.Load(target, target):
        time.sleep(10)

        def watch():
            _, text, _ = cli("reader", "top", "-n", "apps", "--gateway", "varnish", "--interval", "2", "--count", "8", "--output", "json")
            rates.extend(json.loads(line)["gateways"][0]["total"]["rate"] for line in text.splitlines())

        watching = threading.Thread(target=watch)
        watching.start()
        time.sleep(5)
        t.kubectl("-n", "apps", "delete", "pod", "--wait=false", sorted(t.of_gateway("varnish"))[0])
        watching.join()
    usual = statistics.median(rates)
    if len(rates) != 8 or usual < 5 or max(rates) > 2.5 * usual:
        t.fail(f"top, while a pod went: {rates} requests a second")
    t.say(f"top: {usual:.0f} requests a second, at most {max(rates):.0f} while a pod went")


@contextlib.contextmanager
def forwarded(namespace, what):
    """The local port of a port-forward to 9000."""
    words = ["kubectl", "-n", namespace, "port-forward", what, ":9000"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = process.stdout.readline()
        yield int(re.search(r":(\d+) ->", line)[1])
    finally:
        process.terminate()
        process.wait()


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=body, headers={"Host": f"localhost:{port}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def event(port):
    """The first of the stream that is one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/events", headers={"Host": f"localhost:{port}", "Accept": "text/event-stream"})
        answer = connection.getresponse()
        for line in answer:
            if line.startswith(b"event:"):
                return line.decode().split(":", 1)[1].strip()
    finally:
        connection.close()
    return None


PURGE = json.dumps({"method": "Purge", "hostname": "blue.example.com", "paths": ["/"], "tags": []})


def dashboards(t):
    """As parameters have it: for reading, with actions, none."""
    with forwarded("apps", "deploy/varnish") as port:
        code, page = ask(port, "GET", "/")
        expect(t, "the dashboard's page", page, "<title>")
        code, text = ask(port, "GET", "/api/state")
        state = json.loads(text)
        if state["allow_actions"] or state["gateways"][0]["name"] != "apps/varnish" or not state["gateways"][0]["serving"]:
            t.fail(f"/api/state of the dashboard: {text}")
        query = urllib.parse.urlencode({"host": "varnish.example.com", "path": "/cart"})
        code, text = ask(port, "GET", f"/api/explain?{query}")
        expect(t, "the box that explains", text, "apps/varnish")
        if event(port) not in ("entry", "second", "changed"):
            t.fail("the dashboard's stream has no events")
        if ask(port, "POST", "/api/purge", PURGE, **{"X-Varnish-Gateway": "1", "Content-Type": "application/json"})[0] == 200:
            t.fail("a dashboard without allowActions purges")
        if ask(port, "GET", "/api/state", **{"Host": "evil.example.com"})[0] != 403:
            t.fail("a dashboard answers under any name")
    with forwarded("apps", "deploy/blue") as port:
        code, text = ask(port, "POST", "/api/purge", PURGE, **{"X-Varnish-Gateway": "1", "Content-Type": "application/json"})
        if code != 200 or not json.loads(ask(port, "GET", "/api/state")[1])["allow_actions"]:
            t.fail(f"a dashboard with allowActions does not purge: {code} {text}")
    with forwarded("blue", "deploy/blue") as port:
        try:
            code, _ = ask(port, "GET", "/")
            t.fail(f"a dashboard that was switched off answers {code}")
        except (OSError, http.client.HTTPException):
            pass
    t.say("dashboards by port-forward: for reading, with actions, none")


def logs(t, odd, blue):
    """Query strings are in the log where they were asked for."""
    for (address, host), wanted in ((odd, False), (blue, True)):
        name = host.split(".")[0]
        connection = http.client.HTTPConnection(address, 80, timeout=5)
        connection.request("GET", "/logged?token=secret", headers={"Host": host})
        connection.getresponse().read()
        connection.close()

        def lines(name=name):
            text = t.kubectl("-n", "apps", "logs", "-l", f"gateway.networking.k8s.io/gateway-name={name}", "-c", "logging", "--tail=500")
            return [line for line in text.splitlines() if '"/logged' in line]

        found = t.until(f"the request is in the log of {name}", lines)
        if any("token=secret" in line for line in found) != wanted or json.loads(found[0])["route"] != f"apps/{name}":
            t.fail(f"access log of {name}: {found}")
    t.say("access logs: query strings where they were asked for")


def measured(t, operator_namespace):
    """Every metric of ours is in the reference, and alerts and dashboards ask for what there is."""
    from ..pages import metrics  # python3-yaml is needed for this alone

    def scrape(namespace, selector, port):
        name = sorted(t.pods(namespace, selector))[0]
        return set(re.findall(r"^# TYPE (\S+)", t.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"), re.M))

    found = scrape("apps", "gateway.networking.k8s.io/gateway-name=varnish", 8081) | scrape(operator_namespace, "app.kubernetes.io/name=varnish-gateway-operator", 8080)
    plain = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in metrics.known()} | metrics.known()
    if unknown := sorted(name for name in found if name.startswith("varnish_gateway_") and name not in plain):
        t.fail(f"docs/reference/metrics.md does not list {unknown}")
    for where, expression in metrics.expressions():
        for name in metrics.asked(expression):
            if metrics.VARNISHD.fullmatch(name) and name not in found:
                t.fail(f"{where}: no varnishd has {name}")
    t.say(f"{len(found)} metrics: ours are in the reference, varnishd's that dashboards ask for exist")


def check(t, odd, blue, operator_namespace):
    status(t, {"apps/varnish", "apps/blue", f"{operator_namespace}/varnish", "blue/blue"})
    rights(t)
    stuck(t)
    top(t, odd)
    dashboards(t)
    logs(t, odd, blue)
    measured(t, operator_namespace)
