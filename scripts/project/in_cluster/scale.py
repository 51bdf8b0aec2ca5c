"""The measurement itself; runs where the cluster's addresses are reachable."""

import random
import statistics
import time

from . import client
from . import kube
from . import memory


def prepare(api, gateway=None):
    for path, body in [kube.namespace(), *kube.origin(), gateway or kube.gateway()]:
        api.create(path, body)
    return kube.address(api)


def memories():
    return {"operator": memory.sample("operator"), "chaperone": memory.sample("chaperone")}


def new_routes(api, address, first, count, existing):
    def new(number):
        at = (f"new{number}.example.com", f"/n{number}")
        return kube.route(f"new{number:05}", *at), [at]

    return one_at_a_time(api, address, [new(number) for number in range(first, first + count)], existing)


def one_at_a_time(api, address, objects, existing):
    """Objects, each with the hosts and paths that it serves: from the POST to the first 200 of the last of these, and what was
    answered before and after it."""
    ask, found = client.Client(address), []
    with client.Load(address, existing) as load:
        time.sleep(1)
        for one, places in objects:
            last = places[-1]
            api.call("GET", "/version")  # a connection that is open
            before = {str(ask.status(*last))}
            sent = time.monotonic()
            api.create(*one)
            created = time.monotonic()
            while (status := ask.status(*last)) != 200 and time.monotonic() - created < 30:
                before.add(str(status))
                time.sleep(0.001)
            served = time.monotonic()
            # Other connections may lead to other Pods.
            after = {}
            while time.monotonic() - served < 0.5:
                ask.close()
                again = str(ask.status(*random.choice(places)))
                after[again] = after.get(again, 0) + 1
                time.sleep(0.02)
            found.append({
                "ms_from_sent": round((served - sent) * 1000, 1),
                "ms_from_created": round((served - created) * 1000, 1),
                "before": sorted(before),
                "after": after,
                "answered": status == 200,
            })
            time.sleep(random.uniform(0.2, 0.5))
    return {"each": found, "load": load.result(), **summary(found)}


def summary(found):
    times = sorted(one["ms_from_sent"] for one in found)
    return {
        "mean_ms": round(statistics.mean(times), 1),
        "median_ms": round(statistics.median(times), 1),
        "p90_ms": times[int(len(times) * 0.9)],
        "worst_ms": times[-1],
        "mean_ms_from_created": round(statistics.mean(one["ms_from_created"] for one in found), 1),
        "answered": sum(one["answered"] for one in found),
        "before": sorted({status for one in found for status in one["before"]}),
        "not_200_after": sum(n for one in found for status, n in one["after"].items() if status != "200"),
    }


def config_maps(api):
    """Those of the Gateway: name and size of their data."""
    items = api.call("GET", f"/api/v1/namespaces/{kube.NAMESPACE}/configmaps")["items"]
    ours = [one for one in items if one["metadata"]["name"].startswith(kube.GATEWAY + "-")]

    def size(one):
        return sum(len(v) for v in one.get("data", {}).values()) + sum(len(v) * 3 // 4 for v in one.get("binaryData", {}).values())

    return {one["metadata"]["name"]: size(one) for one in ours}


def grow(api, address, old, new, more, patience, say):
    """From `old` to `new` routes, and then `more` one at a time."""
    say(f"{new} routes")
    created = kube.create_routes(api, range(old, new))
    say(f"  created in {created:.1f} s")
    routes = [kube.host(number) for number in range(new)]
    some = routes if new <= 3000 else random.sample(routes, 2000) + routes[-200:]
    answered = client.all_answer(address, some, patience)
    say(f"  {len(some)} of them answer, {answered:.1f} s after the last was created")
    time.sleep(10)
    before = memories()
    found = new_routes(api, address, new, more, routes)
    after = memories()
    say(f"  a new one answers after {found['mean_ms']} ms in the mean; load: {found['load']}")
    cpu = after["operator"].get("cpu_seconds", 0) - before["operator"].get("cpu_seconds", 0)
    return {
        "routes": new,
        "created_seconds": round(created, 1),
        "all_answer_seconds": round(answered, 1),
        "asked": len(some),
        "new": found,
        "memory": after,
        "operator_cpu_ms_per_new_route": round(cpu * 1000 / more, 1),
        "config_maps": config_maps(api),
    }


def measure(sizes, more, patience, say):
    api = kube.Api()
    address = prepare(api)
    say(f"Gateway at {address}")
    result = {"empty": memories(), "sizes": []}
    old = 0
    for new in sizes:
        result["sizes"].append(grow(api, address, old, new, more, patience, say))
        old = new
    return result
