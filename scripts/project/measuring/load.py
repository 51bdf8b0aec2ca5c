"""Load generators, and the CPU time that a server takes for their load.

A generator has `command(server, request, seconds)` and `parse(text)`: how many requests (messages, MiB) in how many seconds, latencies, failures.
"""

import json
import re
import resource
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import manifests
from . import processes

UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
# Of a core, from which on a server was the limit, not its load.
BUSY = 0.97


def run(generator, server, request, seconds, origins=()):
    """One run, with the CPU time that the server took for it, and that others took from it."""
    begun, before = time.monotonic(), _used(server, origins)
    command = generator.command(server, request, seconds)
    with server.meanwhile() as meanwhile, _Memory(server) as memory:
        process = processes.start(command, [processes.cores()[1]], subprocess.STDOUT, stdout=subprocess.PIPE)
        text = process.communicate(timeout=seconds + 120)[0].decode()
        processes.end(process)
    took = time.monotonic() - begun
    if process.returncode != 0:
        raise RuntimeError(f"{server.name}: {' '.join(map(str, command))} said:\n{text[-1000:]}")
    used = {key: after - before[key] for key, after in _used(server, origins).items()}
    result = generator.parse(text)
    strangers = used["load_core"] - used["load"] - used["origin"]
    return {
        **result,
        "cpu_us": round(used["server"] / max(result["count"], 1) * 1e6, 2),
        "server_core_busy": round(used["server_core"] / took, 3),
        "load_core_busy": round(used["load_core"] / took, 3),
        # A run in which other processes were busy on either core is worth little.
        "server_core_others": round(max(used["server_core"] - used["server"], 0) / took, 3),
        "load_core_others": round(max(strangers, 0) / took, 3),
        "stolen": round(max(used["stolen"], 0) / took, 3),
        "rss_before_mib": round(memory.before, 1),
        "rss_most_mib": round(memory.most, 1),
        **meanwhile,
    }


class _Memory:
    """Samples the server's RSS."""

    def __init__(self, server):
        # Known once: varnishd has hundreds of threads, whose children take long to look up.
        self.pids = processes.tree(server.process.pid)
        self.before = self.most = processes.rss(self.pids)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample)

    def _sample(self):
        while not self.over.wait(0.2):
            self.most = max(self.most, processes.rss(self.pids))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def _used(server, origins):
    """CPU seconds until now."""
    core, load_core, _ = processes.cores()
    (server_core, stolen), (load_core, also_stolen) = processes.core_seconds(core), processes.core_seconds(load_core)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "server": processes.cpu_seconds(server.process.pid),
        "origin": sum(processes.cpu_seconds(origin.process.pid) for origin in origins),
        "load": children.ru_utime + children.ru_stime,
        "server_core": server_core,
        "load_core": load_core,
        "stolen": stolen + also_stolen,
    }


def _result(count, seconds, p50=None, p99=None, failed=0, **more):
    return {"per_second": round(count / seconds, 2), "count": count, "failed": failed, "p50_ms": p50, "p99_ms": p99, **more}


@dataclass
class Wrk:
    connections: int
    # Beside this file: which object is asked for.
    script: str = ""
    unit = "requests"

    def command(self, server, request, seconds):
        url = f"{request.scheme}://127.0.0.1:{server.port_of(request)}{request.path}"
        headers = [word for header in (f"Host: {manifests.host()}", *request.headers) for word in ("-H", header)]
        script = ["-s", Path(__file__).with_name(self.script)] if self.script else []
        return ["wrk", "-t1", f"-c{self.connections}", f"-d{seconds}s", "--latency", *script, *headers, url]

    def parse(self, text):
        rate = float(_find(r"Requests/sec:\s+([\d.]+)", text)[0])
        total = int(_find(r"(\d+) requests in", text)[0])
        errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
        other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        failed = sum(map(int, errors.groups())) if errors else 0
        failed += int(other.group(1)) if other else 0
        return {**_result(total, 1, _latency(text, 50), _latency(text, 99), failed), "per_second": rate}

    def __str__(self):
        return f"wrk -t1 -c{self.connections}{f' -s {self.script}' if self.script else ''}"


@dataclass
class H2load:
    connections: int
    streams: int
    unit = "requests"
    host = manifests.host()

    def command(self, server, request, seconds):
        url = f"{request.scheme}://127.0.0.1:{server.port_of(request)}{request.path}"
        size = ["-t1", f"-c{self.connections}", f"-m{self.streams}", "-D", seconds]
        return ["h2load", *size, "-H", f":authority: {self.host}", url]

    def parse(self, text):
        seconds = float(_find(r"finished in ([\d.]+)s", text)[0])
        done, good = map(int, _find(r"started, (\d+) done, (\d+) succeeded", text))
        middle = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s|m)\b", text)
        mean = round(float(middle.group(1)) * UNITS[middle.group(2)], 3) if middle else None
        return _result(good, seconds, failed=done - good, mean_ms=mean)

    def __str__(self):
        return f"h2load -t1 -c{self.connections} -m{self.streams}"


class Calls(H2load):
    """Unary gRPC calls with a message of 32 bytes."""

    unit = "calls"
    host = manifests.GRPC_HOST
    MESSAGE = b"\0" + (32).to_bytes(4, "big") + b"x" * 32

    def command(self, server, request, seconds):
        message = server.directory / "message"
        message.write_bytes(self.MESSAGE)
        words = super().command(server, request, seconds)
        return [*words[:-1], "-d", message, "-H", "content-type: application/grpc", "-H", "te: trailers", words[-1]]


class Tool:
    """crates/gateway/examples/bench_load."""

    program = None
    unit = "requests"

    def command(self, server, request, seconds):
        at = f"127.0.0.1:{server.port_of(request)}"
        return [self.program, self.name, at, manifests.host(), request.path, *self.size(seconds)]

    def parse(self, text):
        said = json.loads(text)
        more = {"sent_late_p99_ms": said["sent_late_p99_ms"]} if "sent_late_p99_ms" in said else {}
        return _result(said["count"], said["seconds"], said["p50_ms"], said["p99_ms"], said.get("not_2xx", 0), **more)


@dataclass
class WebSocket(Tool):
    connections: int
    name = "websocket"
    unit = "messages"

    def size(self, seconds):
        return [self.connections, seconds]

    def __str__(self):
        return f"bench_load websocket, {self.connections} connections"


@dataclass
class Rate(Tool):
    """Open loop: requests are due at fixed times, and latency counts from then."""

    connections: int
    rate: float
    name = "rate"

    def size(self, seconds):
        return [self.connections, self.rate, seconds]

    def __str__(self):
        return f"bench_load rate, {self.connections} connections"


@dataclass
class Transfer(Tool):
    name: str
    gibibytes: int
    connections = 1
    unit = "MiB"

    def size(self, _seconds):
        return [self.gibibytes << 30]

    def parse(self, text):
        said = json.loads(text)
        return _result(said["bytes"] >> 20, said["seconds"])

    def __str__(self):
        return f"bench_load {self.name}, {self.gibibytes} GiB in one body"


@dataclass
class Datagrams(Tool):
    """Closed loop: each socket sends its next datagram when the last one has come back."""

    sockets: int
    name = "udp"
    unit = "datagrams"

    def size(self, seconds):
        return [self.sockets, seconds]

    def __str__(self):
        return f"bench_load udp, {self.sockets} sockets"


def _find(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise RuntimeError(f"the load generator said:\n{text[-1000:]}")
    return found.groups()


def _latency(text, percent):
    found = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s|m)\b", text)
    return round(float(found.group(1)) * UNITS[found.group(2)], 3) if found else None
