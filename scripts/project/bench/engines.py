"""Measures the cache engines side by side on this machine: Varnish Cache 7.1 (installed here), 7.7 (trixie) and Vinyl Cache 9.0 (forky).

    scripts/bench engines                     everything, about 35 minutes on an idle machine
    scripts/bench engines --quick             a short run, to see that the benchmark works; its numbers are no results
    scripts/bench engines --only 7.7 9.0      some engines
    scripts/bench engines hits pass vcl memory    some parts

Each engine runs in the root that scripts/test engine makes, bare and with ghost (`serve` with dataPath Varnish, so that the engine has the port). Hits
and passed requests by wrk; vcl.load by the compilers that the engine's suite has; memory for small objects. Loopback only; ends every process it
started; writes docs/results. Needs root, for chroot.
"""

import argparse
import datetime
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from ..cluster import REPOSITORY
from ..measuring import load, machine, manifests, processes, report

CACHE = Path(os.environ.get("VG_CACHE", Path.home() / ".cache/varnish-gateway"))
PARTS = ("hits", "pass", "vcl", "memory")
BODY = "x" * 100
STORAGE = "malloc,2G"


@dataclass
class Engine:
    version: str
    name: str
    suite: str = ""
    compilers: tuple = ("gcc",)

    @property
    def root(self):
        return CACHE / self.suite if self.suite else Path("/")

    @property
    def vmod(self):
        target = CACHE / f"{self.suite}-target" if self.suite else REPOSITORY / "target"
        return target / "release/libvmod_ghost.so"

    def inside(self, command, directory, path="/usr/sbin:/usr/bin:/sbin:/bin"):
        """The command in the engine's root, with these directories at the same place."""
        if not self.suite:
            return ["env", f"PATH={path}:/usr/local/sbin", *command]
        script = """
            root=$1 path=$2; shift 2
            mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/tmp"
            for dir in "$1" "$2" "$3"; do mkdir -p "$root$dir"; mount --bind "$dir" "$root$dir"; done; shift 3
            exec chroot "$root" /usr/bin/env PATH="$path" "$@"
        """
        places = [directory, REPOSITORY / "target", self.vmod.parent]
        return ["unshare", "--mount", "--", "bash", "-euc", script, "inside", self.root, path, *places, *command]


ENGINES = (
    Engine("7.1", "Varnish Cache 7.1"),
    Engine("7.7", "Varnish Cache 7.7", "trixie", ("tcc", "gcc")),
    Engine("9.0", "Vinyl Cache 9.0", "forky"),
)


class Server:
    def __init__(self, name, engine, directory, port, command, **options):
        self.name, self.engine, self.directory, self.port = f"{engine.name}, {name}", engine, directory, port
        self.log = open(directory / "log", "ab+")
        self.process = processes.start(engine.inside(command, directory, **options), processes.server_cores(), self.log)

    def port_of(self, _request):
        return self.port

    def answers(self, path):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended:\n{Path(self.log.name).read_text(errors='replace')[-2000:]}")
        url = f"http://127.0.0.1:{self.port}{path}"
        done = subprocess.run(["curl", "-s", "-m", "5", "-H", f"Host: {manifests.host()}", url], capture_output=True, text=True)
        return done.stdout == BODY

    def ready(self):
        processes.wait_for(lambda: self.answers("/hit/0"), f"an answer of {self.name}: see {self.log.name}")
        return self

    def tool(self, *command):
        done = subprocess.run([str(word) for word in self.engine.inside(command, self.directory)], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, command))}: {done.stderr[-1000:]}{done.stdout[-1000:]}")
        return done.stdout

    def objects(self):
        words = self.tool("varnishstat", "-1", "-n", self.workdir, "-f", "MAIN.n_object").split()
        return int(words[1]) if words else 0

    def end(self):
        processes.end(self.process)
        self.log.close()


class Bare(Server):
    def __init__(self, engine, directory, port, origin, compiler=None):
        vcl, self.workdir = directory / "bare.vcl", directory / "varnishd"
        vcl.write_text(
            f'vcl 4.1;\nbackend origin {{ .host = "127.0.0.1"; .port = "{origin}"; }}\n'
            'sub vcl_recv { if (req.url ~ "^/pass/") { return (pass); } return (hash); }\n'
            "sub vcl_backend_response { set beresp.ttl = 1h; return (deliver); }\n"
        )
        daemon = ["varnishd", "-F", "-a", f"127.0.0.1:{port}", "-f", vcl, "-n", self.workdir, "-s", STORAGE]
        # varnishd looks for its compiler by name, and images/vcl-cc has that name (scripts/test engine puts it there).
        path = "/usr/sbin:/usr/bin:/sbin:/bin" if compiler != "tcc" else "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        super().__init__("bare", engine, directory, port, daemon, path=path)


class Ghost(Server):
    def __init__(self, engine, directory, port, origin):
        self.workdir = directory / "state/default_web/varnishd"
        given = directory / "manifests.yaml"
        given.write_text(MANIFESTS.format(port=port, origin=origin, host=manifests.host(), storage=STORAGE))
        program = REPOSITORY / "target/release/varnish-gateway"
        command = [program, "serve", "-f", given, "--bind", "127.0.0.1", "--state-dir", directory / "state", "--vmod", engine.vmod]
        super().__init__("ghost", engine, directory, port, command)


MANIFESTS = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: varnish}}
spec:
  controllerName: varnish-software.com/gateway
  parametersRef: {{group: gateway.varnish-software.com, kind: GatewayClassParameters, name: bench, namespace: default}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: bench, namespace: default}}
spec: {{dataPath: Varnish, varnishdExtraArgs: [-s, "{storage}"]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web, namespace: default}}
spec: {{gatewayClassName: varnish, listeners: [{{name: http, protocol: HTTP, port: {port}}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: hit, namespace: default}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{host}]
  rules: [{{matches: [{{path: {{type: PathPrefix, value: /hit}}}}], backendRefs: [{{name: origin, port: 80}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: pass, namespace: default}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{host}]
  rules: [{{matches: [{{path: {{type: PathPrefix, value: /pass}}}}], backendRefs: [{{name: origin, port: 80}}]}}]
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {{name: hit, namespace: default}}
spec: {{targetRef: {{group: gateway.networking.k8s.io, kind: HTTPRoute, name: hit}}, forcedTTL: 1h}}
---
apiVersion: v1
kind: Service
metadata: {{name: origin, namespace: default}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: origin-1, namespace: default, labels: {{kubernetes.io/service-name: origin}}}}
addressType: IPv4
ports: [{{port: {origin}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""

ORIGIN = """
daemon off; worker_processes 1; error_log {dir}/origin.log; pid {dir}/origin.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; default_type text/plain;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "{body}"; }} }}
}}
"""


class Origin:
    name = "origin (nginx)"

    def __init__(self, directory):
        (self.port,) = processes.free_ports(1)
        conf = directory / "origin.conf"
        conf.write_text(ORIGIN.format(dir=directory, port=self.port, body=BODY))
        self.process = processes.start(["nginx", "-p", directory, "-c", conf], processes.origin_cores(), open(directory / "nginx.out", "ab"))


def request(path):
    return SimpleNamespace(entrance="", scheme="http", path=path, headers=())


class Numbered(load.Wrk):
    """A new URL with every request, counted on from `first`."""

    first = 0

    def command(self, server, request, seconds):
        script = server.directory / "numbered.lua"
        script.write_text(f'local n = {self.first}\nrequest = function() n = n + 1; return wrk.format("GET", "/hit/" .. n) end\n')
        return [*super().command(server, request, seconds)[:-1], "-s", str(script), f"http://127.0.0.1:{server.port}/"]


class Bench:
    def __init__(self, given):
        self.given = given
        self.found = []
        self.engines = [engine for engine in ENGINES if not given.only or engine.version in given.only]

    def directory(self):
        made = tempfile.TemporaryDirectory(prefix="bench-engines-")
        Path(made.name).chmod(0o755)
        return made

    def server(self, kind, engine, directory, origin, **more):
        (port,) = processes.free_ports(1)
        place = Path(directory) / f"{engine.version}-{kind.__name__.lower()}-{port}"
        place.mkdir(mode=0o755)
        return kind(engine, place, port, origin.port, **more).ready()

    def say(self, part, server, figures):
        engine = server.engine
        how = type(server).__name__.lower()
        print(f"  {part:<8}{engine.name:<20}{how:<7}{json.dumps(figures)}", flush=True)
        self.found.append({"part": part, "engine": engine.name, "how": how, **figures})

    def requests(self, origin, directory, parts):
        """Rounds that are interleaved: whatever disturbs the machine disturbs all engines."""
        for number in range(self.given.rounds):
            for engine in self.engines:
                for kind in (Bare, Ghost):
                    server = self.server(kind, engine, directory, origin)
                    for part in parts:
                        path = "/hit/0" if part == "hits" else "/pass/0"
                        processes.wait_for(lambda server=server, path=path: server.answers(path), "an answer")
                        load.run(load.Wrk(32), server, request(path), 1, [origin])
                        run = load.run(load.Wrk(32), server, request(path), self.given.seconds, [origin])
                        if run["failed"]:
                            raise RuntimeError(f"{server.name}: {run['failed']} requests failed")
                        self.say(part, server, {"round": number + 1, **run})
                    server.end()

    def vcl(self, origin, directory):
        """From the command to its answer: the VCL is compiled, linked and loaded."""
        for engine in self.engines:
            for compiler in engine.compilers:
                server = self.server(Bare, engine, directory, origin, compiler=compiler)
                large = server.directory / "large.vcl"
                lines = [f'  if (req.url ~ "^/path-{n}/" && req.http.Host == "host-{n}.example.com") {{ set req.http.X-N = "{n}"; }}\n' for n in range(500)]
                large.write_text((server.directory / "bare.vcl").read_text() + "sub vcl_deliver {\n" + "".join(lines) + "}\n")
                for size, file in (("small", server.directory / "bare.vcl"), ("500 conditions", large)):
                    times = []
                    for number in range(self.given.loads):
                        begun = time.monotonic()
                        server.tool("varnishadm", "-t", "120", "-n", server.workdir, "vcl.load", f"large{size.count(' ')}n{number}", file)
                        times.append(round((time.monotonic() - begun) * 1000))
                    self.say("vcl", server, {"compiler": compiler, "size": size, "ms": round(statistics.median(times)), "all_ms": times})
                server.end()

    def memory(self, origin, directory):
        """RSS of all processes before and after that many objects of 100 bytes."""
        for engine in self.engines:
            for kind in (Bare, Ghost):
                server = self.server(kind, engine, directory, origin)
                wrk = Numbered(32)
                # Threads, connections and the log of varnishd, which is shared memory, find their size.
                load.run(load.Wrk(32), server, request("/hit/0"), self.given.seconds * 2, [origin])
                before, begun = processes.memory(server.process.pid), server.objects()
                deadline = time.monotonic() + 900
                while (kept := server.objects() - begun) < self.given.objects:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"{server.name}: {kept} objects after 15 minutes")
                    wrk.first += load.run(wrk, server, request("/"), self.given.seconds, [origin])["count"] + 100
                after = processes.memory(server.process.pid)
                grown = (after["pss"] - before["pss"]) * 2**20
                self.say("memory", server, {"objects": kept, "before_mib": round(before["pss"], 1), "after_mib": round(after["pss"], 1),
                                            "bytes_an_object": round(grown / kept)})
                server.end()

    def run(self, parts):
        with self.directory() as directory:
            origin = Origin(Path(directory))
            requests = [part for part in parts if part in ("hits", "pass")]
            if requests:
                self.requests(origin, directory, requests)
            if "vcl" in parts:
                self.vcl(origin, directory)
            if "memory" in parts:
                self.memory(origin, directory)


def markdown(result):
    found = result["found"]
    parts = [
        f"# {result['date']}: three cache engines{', quick' if result['quick'] else ''}",
        "Written by `scripts/bench engines`; the same numbers are in the JSON file beside this one."
        + (" A quick run checks the benchmark itself: its numbers are not results." if result["quick"] else ""),
        f"```\n{result['command']}\n```",
        report.table(["", ""], list(result["machine"].items())),
        "Server on one core, load and origin on the other; responses of 100 bytes. `ghost` is `serve` with `dataPath: Varnish`.",
    ]
    for part, title in (("hits", "Hits"), ("pass", "Passed requests")):
        groups = {}
        for run in (run for run in found if run["part"] == part):
            groups.setdefault((run["engine"], run["how"]), []).append(run)
        middle = lambda runs, key: statistics.median(run[key] for run in runs)  # noqa: E731
        rows = [
            (*group, round(middle(runs, "per_second")), middle(runs, "cpu_us"), middle(runs, "server_core_busy"), middle(runs, "p99_ms"),
             ", ".join(str(round(run["per_second"])) for run in runs))
            for group, runs in groups.items()
        ]  # fmt: skip
        if rows:
            columns = ["engine", "", "requests/s", "server CPU µs/request", "server's core busy", "p99 ms", "by round"]
            parts += [f"## {title}", "`wrk -t1 -c32`, medians.", report.table(columns, rows)]
    rows = [(run["engine"], run["compiler"], run["size"], run["ms"], ", ".join(map(str, run["all_ms"]))) for run in found if run["part"] == "vcl"]
    if rows:
        parts += ["## vcl.load", "From varnishadm's start to its end, median.", report.table(["engine", "compiler", "VCL", "ms", "all"], rows)]
    rows = [(run["engine"], run["how"], f"{run['objects']:,}", run["before_mib"], run["after_mib"], run["bytes_an_object"]) for run in found if run["part"] == "memory"]
    if rows:
        parts += ["## Memory for small objects", "PSS of all processes, MiB; bodies of 100 bytes.",
                  report.table(["engine", "", "objects", "before", "after", "bytes an object"], rows)]
    return "\n\n".join(parts) + "\n"


def prepare(engines):
    subprocess.run([REPOSITORY / "scripts/setup", "bench"], check=True)
    gateway = ["cargo", "build", "--release", "-p", "gateway", "--bin", "varnish-gateway", "-p", "ghost", "--lib"]
    subprocess.run(gateway, cwd=REPOSITORY, check=True)
    for engine in engines:
        if engine.suite:
            subprocess.run([REPOSITORY / "scripts/test", "engine", engine.suite, "--vmod"], check=True)


def ended_by(number, _frame):
    raise SystemExit(f"Ended by {signal.Signals(number).name}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--only", nargs="+", choices=[engine.version for engine in ENGINES], help="these engines")
    parser.add_argument("--quick", action="store_true", help="a little of everything; not a result")
    parser.add_argument("--no-build", action="store_true", help="take the programs that are built")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--objects", type=int)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}")
    if os.getuid() != 0:
        parser.error("needs root, for chroot")
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.seconds = given.seconds or (2 if given.quick else 5)
    given.objects = given.objects or (20_000 if given.quick else 1_000_000)
    given.loads = 3 if given.quick else 11
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended_by)
    bench = Bench(given)
    if not given.no_build:
        prepare(bench.engines)
    processes.allow_many_files()
    parts = given.parts or list(PARTS)
    result = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["scripts/bench", "engines", *sys.argv[1:]]),
        "quick": given.quick,
        "machine": machine.facts(REPOSITORY),
    }
    begun = time.monotonic()
    try:
        bench.run(parts)
    finally:
        processes.end_all()
    result |= {"minutes": round((time.monotonic() - begun) / 60, 1), "found": bench.found}
    name = f"{result['date']}-engines" + ("" if parts == list(PARTS) else "-" + "-".join(parts)) + ("-quick" if given.quick else "")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (given.out / f"{name}.md").write_text(markdown(result))
    print(given.out / f"{name}.md")
