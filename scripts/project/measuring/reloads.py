"""Reloads with 10,000 routes: how long one takes, and whether 100 under load cost a single request."""

import json
import signal
import subprocess
import sys
import time
from statistics import median

from . import manifests
from . import processes
from .servers import HERE, Gateway, Origin

CONNECTIONS = 16
# So that the one core is busy, and not so busy that reloads wait for it.
PAUSE = 0.003
# Half of the requests pass, half are hits.
VCL = """\
sub vcl_recv {
  if (req.url ~ "/cached$") {
    unset req.http.X-Ghost-Pass;
  }
}
"""


def reload(directory, plan):
    origin_port, port = processes.free_ports(2)
    origin = Origin(directory, origin_port).ready()
    gateway = Gateway(directory, port, origin_port, vcl=VCL).ready()
    times = [_one(gateway, number) for number in range(plan.single_reloads)]
    for one in times:
        plan.say(f"  reload: new answer after {one['new_answer_ms']:.0f} ms, ghost {one['ghost_ms']:.0f} ms")
    under_load = _under_load(gateway, origin_port, plan)
    gateway.end()
    origin.end()
    seen = under_load["seen"]
    failed = sum(count for what, count in seen.items() if what.startswith("failed"))
    count = plan.loaded_reloads
    return {
        "single": times,
        "median_new_answer_ms": median(one["new_answer_ms"] for one in times),
        "median_ghost_ms": median(one["ghost_ms"] for one in times),
        "under_load": under_load,
        "verdicts": [
            (
                f"{count} reloads under load with zero failed requests",
                f"{failed} failed of {failed + seen.get('ok', 0)}, {under_load['reloads']} reloads",
                failed == 0 and seen.get("ok", 0) > 0 and under_load["reloads"] >= count,
            )
        ],
    }


def _one(gateway, number):
    """Writes the file of all routes with one route changed, and asks until the answer shows it."""
    text, path = manifests.routes(mark=number), f"{manifests.path()}/pass"
    before = len(gateway.events("reloaded"))
    begun = time.monotonic()
    manifests.place(gateway.manifests / "routes.yaml", text)
    while gateway.get(path).getheader("X-Mark") != str(number):
        if time.monotonic() - begun > 60:
            raise RuntimeError("the changed route does not show")
        time.sleep(0.002)
    took = time.monotonic() - begun
    gateway.reloaded(before + 1)
    return {"new_answer_ms": round(took * 1e3, 1), "ghost_ms": round(gateway.events("reloaded")[-1]["ms"], 1)}


def _under_load(gateway, origin_port, plan):
    """Every reload takes the endpoint that is being asked away, with 999 others, and brings another."""
    moved = [(h, manifests.MEASURED[1]) for h in range(manifests.HOSTS)]
    texts = [manifests.endpoints(origin_port), manifests.endpoints(origin_port, frozenset(moved))]
    client = _client(gateway)
    time.sleep(1)
    before = len(gateway.events("reloaded"))
    begun = time.monotonic()
    for number in range(1, plan.loaded_reloads + 1):
        manifests.place(gateway.manifests / "endpoints.yaml", texts[number % 2])
        gateway.reloaded(before + number)
        if number % 10 == 0:
            plan.say(f"  {number} reloads under load")
    took = time.monotonic() - begun
    time.sleep(1)
    events = gateway.events("reloaded")[before:]
    client.send_signal(signal.SIGTERM)
    said = json.loads(client.communicate(timeout=60)[0])
    processes.end(client)
    if client.returncode != 0:
        raise RuntimeError(f"the load ended with {client.returncode}")
    return {
        **said,
        "reloads": len(events),
        "seconds": round(took, 1),
        "moved_endpoints_per_reload": len(moved),
        "ghost_ms": [round(event["ms"], 1) for event in events],
        "median_ghost_ms": round(median(event["ms"] for event in events), 1),
        "requests_per_second": round(said["seen"].get("ok", 0) / (took + 2)),
    }


def _client(gateway):
    paths = [f"{manifests.path()}/{kind}" for kind in ("pass", "cached")]
    command = [sys.executable, HERE / "steady.py", gateway.port, CONNECTIONS, PAUSE, manifests.host(), *paths]
    return processes.start(command, [processes.cores()[1]], gateway.log, stdout=subprocess.PIPE)
