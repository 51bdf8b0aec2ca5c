"""Load: wrk, and what it says."""

import re
import resource
import subprocess
import time

import processes

CONNECTIONS = 32
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


def command(server, path, host, seconds):
    url = f"http://127.0.0.1:{server.port}{path}{server.query}"
    headers = [argument for header in (f"Host: {host}", *server.headers) for argument in ("-H", header)]
    return ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", *headers, url]


def wrk(server, path, host, seconds, origin=None):
    """One run, with the CPU time that the server took for it, and that others took from it."""
    load_core = processes.cores()[1]
    begun, before = time.monotonic(), _used(server, origin)
    run = processes.start(command(server, path, host, seconds), load_core, subprocess.STDOUT, stdout=subprocess.PIPE)
    text = run.communicate(timeout=seconds + 30)[0].decode()
    processes.end(run)
    took = time.monotonic() - begun
    used = {key: after - before[key] for key, after in _used(server, origin).items()}
    share = {key: round(max(value, 0) / took, 3) for key, value in used.items()}
    result = parse(text)
    return {
        **result,
        "server_cpu_us_per_request": round(used["server"] / max(result["requests"], 1) * 1e6, 2),
        "server_core_busy": share["server_core"],
        "load_core_busy": share["load_core"],
        # A round in which strangers were busy on either core is not worth much.
        "server_core_others": round(max(used["server_core"] - used["server"], 0) / took, 3),
        "load_core_others": round(max(used["load_core"] - used["wrk"] - used["origin"], 0) / took, 3),
        "stolen": share["stolen"],
    }


def _used(server, origin):
    """CPU seconds until now."""
    core, load_core, _ = processes.cores()
    (server_core, stolen), (load_core, also_stolen) = processes.core_seconds(core), processes.core_seconds(load_core)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "server": processes.cpu_seconds(server.process.pid),
        "origin": processes.cpu_seconds(origin.process.pid) if origin else 0.0,
        "wrk": children.ru_utime + children.ru_stime,
        "server_core": server_core,
        "load_core": load_core,
        "stolen": stolen + also_stolen,
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
