"""Load: wrk, and what it says."""

import re
import subprocess
import time

import processes

CONNECTIONS = 32
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


def command(server, path, host, seconds):
    url = f"http://127.0.0.1:{server.port}{path}"
    return ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-H", f"Host: {host}", url]


def wrk(server, path, host, seconds):
    """One run, with the CPU time that the server took for it."""
    core, load_core, _ = processes.cores()
    before = processes.cpu_seconds(server.process.pid), processes.core_seconds(core), processes.core_seconds(load_core)
    begun = time.monotonic()
    run = processes.start(command(server, path, host, seconds), load_core, subprocess.STDOUT, stdout=subprocess.PIPE)
    text = run.communicate(timeout=seconds + 30)[0].decode()
    took = time.monotonic() - begun
    processes.end(run)
    after = processes.cpu_seconds(server.process.pid), processes.core_seconds(core), processes.core_seconds(load_core)
    cpu = after[0] - before[0]
    busy, stolen = (after[1][i] - before[1][i] for i in (0, 1))
    result = parse(text)
    requests = max(result["requests"], 1)
    return {
        **result,
        "server_cpu_us_per_request": round(cpu / requests * 1e6, 2),
        "server_core_busy": round(busy / took, 3),
        # What others took of the server's core: a round with much of it is not worth much.
        "server_core_others": round(max(busy - cpu, 0) / took, 3),
        "server_core_stolen": round(stolen / took, 3),
        "load_core_busy": round((after[2][0] - before[2][0]) / took, 3),
    }


def parse(text):
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if not rate:
        raise RuntimeError(f"wrk said:\n{text}")
    total = re.search(r"(\d+) requests in", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return {
        "requests_per_second": float(rate.group(1)),
        "requests": int(total.group(1)),
        "p50_ms": _latency(text, 50),
        "p99_ms": _latency(text, 99),
        "errors": sum(map(int, errors.groups())) if errors else 0,
        "not_2xx": int(other.group(1)) if other else 0,
    }


def _latency(text, percent):
    found = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s|m)\b", text)
    return round(float(found.group(1)) * UNITS[found.group(2)], 3) if found else None
