"""Measures invalidation, and writes docs/results.

    scripts/bench invalidation                     all: three pods in a cluster; a million objects; ten thousand bans
    scripts/bench invalidation --parts tags,bans   only these of pods, tags, bans
    scripts/bench invalidation --quick             little of everything, to see that the benchmark works
    scripts/bench invalidation --no-build          take binaries and images that are there

pods: from `kubectl create` to the moment at which the last of three pods has forgotten a URL. tags: a purge of 10,000 objects by tag out of
1,000,000, and hits meanwhile. bans: hits before and after 10,000 bans. Needs root, wrk and nginx.
"""

import argparse
import datetime
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ..cluster import REPOSITORY, kubectl, run_inside, say, until
from ..in_cluster import invalidation as gateways
from ..measuring import load, machine, report

ORIGIN = """
daemon off;
worker_processes 1;
pid {dir}/origin.pid;
error_log {dir}/origin-error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  # One object of a hundred has the tag.
  map $uri $tags {{ default "all"; "~00$" "all hot"; }}
  server {{
    listen 127.0.0.1:{port} reuseport;
    location / {{ default_type text/plain; add_header xkey $tags; return 200 "small"; }}
  }}
}}
"""

MANIFESTS = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: varnish}}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {{group: gateway.varnish-software.com, kind: GatewayClassParameters, name: large, namespace: default}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: large, namespace: default}}
spec: {{storage: [{{name: main, type: malloc, size: 6Gi}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec: {{gatewayClassName: varnish, listeners: [{{name: http, protocol: HTTP, port: {port}}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: shop}}
spec: {{parentRefs: [{{name: web}}], rules: [{{backendRefs: [{{name: shop, port: 80}}]}}]}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {{name: shop}}
spec: {{targetRef: {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}}, forcedTTL: 10h}}
---
apiVersion: v1
kind: Service
metadata: {{name: shop}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: shop, labels: {{kubernetes.io/service-name: shop}}}}
addressType: IPv4
ports: [{{port: {origin}}}]
endpoints: [{{addresses: ["127.0.0.1"]}}]
"""

WRK = load.Wrk(32)
FILL = """
local n, last = {first}, {last}
request = function()
  n = n + 1
  if n > last then return wrk.format("GET", "/hit") end
  return wrk.format("GET", "/o/" .. n)
end
"""

# Hits on many objects: each has to be held against the bans.
HITS = """
local n = 0
request = function()
  n = n % 1000 + 1
  return wrk.format("GET", "/hit/" .. n)
end
"""

HOST = gateways.HOST


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["pods", "tags", "bans"])
    parser.add_argument("--rounds", type=int, default=30, help="invalidations of one URL")
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--bans", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=8, help="of each run of wrk")
    parser.add_argument("--program", type=Path, default=REPOSITORY / "target/release/varnish-gateway")
    parser.add_argument("--quick", action="store_true", help="little of everything; not a result")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.objects, given.bans, given.seconds = 5, 20_000, 500, 3
    return given


# pods


def watch(address, url, since, seen):
    """When this pod forgets the URL."""
    connection = http.client.HTTPConnection(address, 80, timeout=5)
    while time.monotonic() - since["begun"] < 20:
        connection.request("GET", url, headers={"Host": HOST})
        answer = connection.getresponse()
        answer.read()
        if answer.getheader("X-Cache") != "HIT":
            seen.append(time.monotonic())
            return
        time.sleep(0.002)


def inside(given):
    gateways.begin()
    there = gateways.pods()
    from_start, from_return = [], []
    for number in range(given.rounds):
        url = f"/round/{number}"
        gateways.warm(there.values(), url)
        time.sleep(0.2)
        since, seen = {"begun": time.monotonic()}, []
        threads = [threading.Thread(target=watch, args=(address, url, since, seen)) for address in there.values()]
        for thread in threads:
            thread.start()
        manifest = gateways.manifest(f"round-{number}", paths=[url])
        begun = time.monotonic()
        kubectl("create", "-f", "-", input=manifest)
        returned = time.monotonic()
        for thread in threads:
            thread.join()
        if len(seen) != 3:
            raise SystemExit(f"{url} was not forgotten by all pods")
        from_start.append((max(seen) - begun) * 1000)
        from_return.append((max(seen) - returned) * 1000)
    given.inside.write_text(json.dumps({"from_start_ms": from_start, "from_return_ms": from_return}))
    return 0


def pods(given):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = ["scripts/bench", "invalidation", "--inside", file.name, "--rounds", given.rounds]
        if run_inside("bench-invalidation", *words, images=None if given.no_build else ()).returncode != 0:
            raise RuntimeError("the cluster's part failed")
        found = json.loads(Path(file.name).read_text())
    mean = {key: round(statistics.mean(values), 1) for key, values in found.items()}
    largest = {key: round(max(values), 1) for key, values in found.items()}
    return {
        "rounds": given.rounds,
        "mean": mean,
        "largest": largest,
        "verdicts": [(
            "one URL, made with kubectl, gone on three pods within 200 ms in the mean",
            f"{mean['from_start_ms']} ms from the start of kubectl, {mean['from_return_ms']} ms from its end",
            mean["from_start_ms"] <= 200,
        )],
    }


# One machine


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machine:
    """serve with one Gateway, and its origin."""

    def __init__(self, given):
        self.dir = Path(tempfile.mkdtemp(prefix="bench-invalidation-"))
        self.dir.chmod(0o755)
        self.program, self.port, origin, self.dashboard = given.program, free_port(), free_port(), free_port()
        (self.dir / "origin.conf").write_text(ORIGIN.format(dir=self.dir, port=origin))
        (self.dir / "hits.lua").write_text(HITS)
        (self.dir / "all.yaml").write_text(MANIFESTS.format(port=self.port, origin=origin))
        log = open(self.dir / "log", "w")
        self.processes = [
            subprocess.Popen(["nginx", "-c", str(self.dir / "origin.conf")], stdout=log, stderr=log),
            subprocess.Popen(
                [str(given.program), "serve", "--bind", "127.0.0.1", "-f", str(self.dir / "all.yaml"), "--state-dir", str(self.dir / "state"),
                 "--dashboard", f"127.0.0.1:{self.dashboard}"],
                stdout=log, stderr=log,
            ),
        ]
        until("the gateway serves", lambda: self.status("/") == 200, 60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(timeout=30)
        shutil.rmtree(self.dir, ignore_errors=True)

    def status(self, url):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", url, headers={"Host": HOST})
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def wrk(self, seconds, url="/", script=None):
        script = script or self.dir / "hits.lua"
        words = ["wrk", "-t1", f"-c{WRK.connections}", f"-d{seconds}s", "--latency", "-H", f"Host: {HOST}", "-s", str(script)]
        done = subprocess.run([*words, f"http://127.0.0.1:{self.port}{url}"], capture_output=True, text=True, check=True)
        return WRK.parse(done.stdout)

    def fill(self, objects):
        script = self.dir / "fill.lua"
        begun, first = time.monotonic(), 0
        # wrk ends by time alone: a part at a time, each from where the last one was.
        while first < objects and time.monotonic() - begun < 240:
            script.write_text(FILL.format(first=first, last=objects))
            first += max(self.wrk(5, "/", script)["count"] - WRK.connections, 0)
        return round(time.monotonic() - begun, 1)

    def metric(self, name):
        """One number of /metrics. ghost's control socket needs a token that only its chaperone has."""
        connection = http.client.HTTPConnection("127.0.0.1", self.dashboard, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        lines = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return int(float(next(lines).rsplit(" ", 1)[1]))

    def memory(self):
        """Objects in the cache, bytes that their index takes, and bytes of varnishd's child in memory."""
        manager = subprocess.run(["pgrep", "-P", str(self.processes[1].pid), "varnishd"], capture_output=True, text=True, check=True).stdout.split()[0]
        child = subprocess.run(["pgrep", "-P", manager], capture_output=True, text=True, check=True).stdout.split()[0]
        resident = int(Path(f"/proc/{child}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        objects, index = self.metric("varnish_main_n_object"), self.metric("varnish_gateway_index_bytes")
        return {"objects": objects, "index_bytes": index, "resident_bytes": resident}

    def ask(self, **invalidation):
        """What `purge` and `ban` ask, without the start of a process."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.dir / "state/control/serve.sock"))
            s.sendall(json.dumps({"gateway": None, "invalidation": invalidation}).encode() + b"\n")
            return json.loads(s.makefile().readline())


def tags(given):
    with Machine(given) as m:
        empty = m.memory()
        filling = m.fill(given.objects)
        full = m.memory()
        m.wrk(1)
        before = m.wrk(given.seconds)
        during = {}
        thread = threading.Thread(target=lambda: during.update(m.wrk(given.seconds)))
        thread.start()
        time.sleep(given.seconds / 4)
        begun = time.monotonic()
        answer = m.ask(method="Purge", tags=["hot"])
        took = time.monotonic() - begun
        thread.join()
        found = answer["outcomes"]["default/web"][0].get("n", 0)
        gone = m.status("/o/100")
    wanted = given.objects // 100
    more = max(full["objects"] - empty["objects"], 1)
    of_index, of_all = (round((full[key] - empty[key]) / more) for key in ("index_bytes", "resident_bytes"))
    return {
        "memory": {"empty": empty, "full": full, "index_bytes_per_object": of_index, "resident_bytes_per_object": of_all},
        "objects": given.objects, "filled_in_seconds": filling, "purged": found, "purge_ms": round(took * 1000, 1),
        "before": before, "during": during, "answers_afterwards": gone,
        "verdicts": [
            (f"a purge by tag of {wanted} objects out of {given.objects}: seconds", f"{found} objects in {took * 1000:.0f} ms",
             found >= wanted * 0.99 and took < 5),
            ("no stall of hits meanwhile", f"p99 {during['p99_ms']} ms against {before['p99_ms']} ms; {during['per_second']:.0f} against "
             f"{before['per_second']:.0f} a second", during["per_second"] > 0.7 * before["per_second"]),
            ("the index takes less than a quarter of an object's memory", f"{of_index} bytes of {of_all} for each object (two tags, 5 bytes of body)",
             of_index * 4 < of_all),
        ],
    }  # fmt: skip


def bans(given):
    with Machine(given) as m:
        m.wrk(1)
        before = m.wrk(given.seconds)
        begun = time.monotonic()
        for number in range(given.bans):
            m.ask(method="Ban", hostname=HOST, paths=[f"^/never/{number}/"])
        took = time.monotonic() - begun
        after = m.wrk(given.seconds)
        time.sleep(5)
        later = m.wrk(given.seconds)
    ratio = after["per_second"] / before["per_second"]
    return {
        "bans": given.bans, "made_in_seconds": round(took, 1), "before": before, "after": after, "later": later,
        "verdicts": [(f"{given.bans} bans do not slow the cache", f"{ratio:.2f} of the hits a second", ratio > 0.9)],
    }


def main():
    os.chdir(REPOSITORY)
    given = arguments()
    if given.inside:
        return inside(given)
    if not given.no_build:
        subprocess.run(["cargo", "build", "--release", "--workspace"], cwd=REPOSITORY, check=True)
    begun = time.monotonic()
    result = {
        "date": datetime.date.today().isoformat(), "quick": given.quick, "command": " ".join(sys.argv),
        "machine": machine.facts(REPOSITORY), "parts": {},
    }  # fmt: skip
    for name in given.parts:
        say(name)
        try:
            result["parts"][name] = {"pods": pods, "tags": tags, "bans": bans}[name](given)
        except Exception as e:  # noqa: BLE001
            result["parts"][name] = {"failed": repr(e)}
        say(json.dumps(result["parts"][name]))
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    rows = [row for part in result["parts"].values() for row in part.get("verdicts", [])]
    text = "\n\n".join([
        f"# {result['date']}: invalidation{', quick' if given.quick else ''}",
        f"Written by `scripts/bench invalidation` in {result['minutes']} minutes; all numbers are in the JSON file beside this one."
        + (" A quick run checks the benchmark itself: its numbers are not results." if given.quick else ""),
        report.table(["", ""], list(result["machine"].items())),
        report.table(["target", "measured", "verdict"], [(target, measured, report.verdict(met)) for target, measured, met in rows]),
        *[f"{name} failed: {part['failed']}" for name, part in result["parts"].items() if "failed" in part],
    ])  # fmt: skip
    name = f"{result['date']}-invalidation{'-quick' if given.quick else ''}"
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    (given.out / f"{name}.md").write_text(text + "\n")
    print(text)
    return 1 if any("failed" in part for part in result["parts"].values()) else 0
