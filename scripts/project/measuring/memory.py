"""Memory with 10,000 routes and 10,000 endpoints, over a bare varnishd that served the same; and over 1,000 reloads."""

import subprocess
import time

from . import entrances
from . import load
from . import manifests
from . import processes
from .peers import Bare
from .servers import AnyOrigin, Chaperone, Gateway

MOST = 100.0
# What two measurements of an idle varnishd may differ by: worker threads come and go, allocators keep pages.
NOISE = 4.0
# The log of varnishd is 80 MiB of shared memory, and counts once it has been written around.
FILL_LOG = 10


def memory(directory, plan):
    origin_port, bare_port, serve_port, chaperone_port = processes.free_ports(4)
    places = {name: directory / name for name in ("bare", "serve", "chaperone")}
    for place in places.values():
        place.mkdir(mode=0o755)
    origin = AnyOrigin(directory, origin_port).ready()

    bare = Bare(places["bare"], bare_port, origin_port).ready()
    bare.port = bare.port_of(entrances.HITS)
    without = _after_traffic(bare, plan)
    bare.end()

    serve = Gateway(places["serve"], serve_port, origin_port, vcl=manifests.CACHING).ready()
    with_serve = _after_traffic(serve, plan)
    curve = [{"reloads": 0, **with_serve, **_counted(serve)}]
    texts = _two_configurations(origin_port)
    for upto in plan.curve:
        _reload(serve, texts, curve[-1]["reloads"], upto)
        curve.append({"reloads": upto, **_settled(serve, plan), **_counted(serve)})
        plan.say(f"  after {upto} reloads: {curve[-1]['pss']:.1f} MiB")
    main_vcl = (serve.state / "main.vcl").read_text()
    serve.end()

    vcl = places["chaperone"] / "given.vcl"
    vcl.write_text(main_vcl)
    chaperone = Chaperone(places["chaperone"], chaperone_port, origin_port, vcl).ready()
    with_chaperone = _after_traffic(chaperone, plan)
    chaperone.end()
    origin.end()
    return _summary(without, with_serve, with_chaperone, curve)


def _after_traffic(server, plan):
    """Every route asked once, so that each has an object and each endpoint was met; then hits, until the log is full."""
    wrong = 0
    for h, p in manifests.all_routes():
        wrong += server.get(f"{manifests.path(p)}/object", manifests.host(h)).status != 200
    if wrong:
        raise RuntimeError(f"{server.name}: {wrong} of the routes did not answer 200")
    load.run(load.Wrk(32), server, entrances.UNCACHED, plan.fill_log or FILL_LOG)
    found = _settled(server, plan)
    plan.say(f"  {server.name}: {found['pss']:.1f} MiB")
    return found


def _settled(server, plan):
    """Allocators give pages back in their own time, and only while memory is allocated: some requests go on meanwhile."""
    deadline = time.monotonic() + plan.settle
    while time.monotonic() < deadline:
        for _ in range(20):
            server.get(f"{manifests.path()}/object")
        time.sleep(0.5)
    found = processes.memory(server.process.pid)
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items()}


def _two_configurations(origin_port):
    """They differ in one route's filter and in 1,000 of 10,000 endpoints."""
    moved = frozenset((h, 0) for h in range(manifests.HOSTS))
    return [
        (manifests.routes(mark="a"), manifests.endpoints(origin_port)),
        (manifests.routes(mark="b"), manifests.endpoints(origin_port, moved)),
    ]


def _reload(server, texts, done, upto):
    """The whole way: files, translation, ghost.json, ghost."""
    before = len(server.events("reloaded")) - done
    for number in range(done + 1, upto + 1):
        routes, endpoints = texts[number % 2]
        # Two files, one change: both are there before the gateway has looked.
        manifests.place(server.manifests / "routes.yaml", routes)
        manifests.place(server.manifests / "endpoints.yaml", endpoints)
        server.reloaded(before + number)


def _counted(server):
    """varnishd's own counts, where a leak would show that memory hides."""
    names = {"MAIN.n_backend": "backends", "MAIN.n_vcl_avail": "vcls", "MAIN.threads": "threads"}
    fields = [word for name in names for word in ("-f", name)]
    done = subprocess.run(
        ["varnishstat", "-1", "-n", str(server.state / "varnishd"), *fields], capture_output=True, text=True, timeout=30
    )
    found = (line.split() for line in done.stdout.splitlines() if line.strip())
    return {names[words[0]]: int(words[1]) for words in found}


def _summary(without, with_serve, with_chaperone, curve):
    over = {name: round(found["pss"] - without["pss"], 1) for name, found in
            (("serve", with_serve), ("chaperone", with_chaperone))}
    # The first reloads find the allocators their size.
    after = curve[1:]
    growth = round(after[-1]["pss"] - after[0]["pss"], 1)
    what = f"{manifests.HOSTS * manifests.PATHS:,} routes and endpoints"
    return {
        "bare": without,
        "serve": with_serve,
        "chaperone": with_chaperone,
        "over_bare": over,
        "curve": curve,
        "growth_after_the_first_reloads": growth,
        "verdicts": [
            (f"memory: chaperone and ghost with {what} over bare varnishd < {MOST:.0f} MiB",
             f"{over['chaperone']} MiB", over["chaperone"] < MOST),
            (f"memory: the same with `serve`, which also holds the manifests, < {MOST:.0f} MiB",
             f"{over['serve']} MiB", over["serve"] < MOST),
            (f"memory: no growth from reload {after[0]['reloads']} to {after[-1]['reloads']} (noise: {NOISE:.0f} MiB)",
             f"{growth:+} MiB", len(after) > 1 and growth <= NOISE),
        ],
    }
