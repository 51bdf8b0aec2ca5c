"""Cached hits and pass: the gateway with 10,000 routes, bare varnishd, nginx and HAProxy, in turns."""

from statistics import median

import load
import manifests
import processes
from servers import BODY, Bare, Front, Gateway, Haproxy, Nginx, Origin

LEAST = 0.95
# Of requests that the front carries: uncached ones beside nginx, hits beside bare varnishd.
LEAST_OF_FRONT = {False: (Nginx.name, 1.0), True: (Bare.name, 0.65)}
# So often is a run repeated that others disturbed. All are published; the undisturbed count, where there are any.
REPEATS = 2


def hits(directory, plan):
    return _measure(directory, plan, cached=True)


def pass_(directory, plan):
    return _measure(directory, plan, cached=False)


def _measure(directory, plan, cached):
    path, rounds = f"{manifests.path()}/object", []
    for number in range(plan.rounds):
        # One start of varnishd differs from the next by several per cent for as long as it runs: every round starts anew.
        place = directory / f"round-{number}"
        place.mkdir(mode=0o755)
        origin_port, *ports = processes.free_ports(6)
        origin = Origin(place, origin_port).ready()
        peers = _peers(place, ports, origin_port, cached)
        for peer in peers:
            peer.ready()
            check(peer, path)
            load.wrk(peer, path, manifests.host(), plan.warm_up)
        # Nobody is always the first, or always after the same one.
        turn = number % len(peers)
        for peer in peers[turn:] + peers[:turn]:
            rounds += run(peer, origin, path, number + 1, plan)
        for server in [*peers, origin]:
            server.end()
    return _summary(rounds, cached, path)


def run(peer, origin, path, number, plan):
    """One run that nobody disturbed, and before it those that somebody did."""
    runs = []
    for _ in range(1 + REPEATS):
        processes.wait_for_quiet(plan.patience)
        asked = origin.requests()
        result = load.wrk(peer, path, manifests.host(), plan.seconds, origin)
        result["origin_requests"] = origin.requests() - asked - 1
        others = max(result["server_core_others"], result["load_core_others"])
        result["disturbed"] = "yes" if others > processes.DISTURBED else "no"
        runs.append({"round": number, "server": peer.name, "counts": "no", **result})
        plan.say(f"  round {number} {peer.name}: {result['requests_per_second']:.0f}/s, disturbed: {result['disturbed']}")
        if result["disturbed"] == "no":
            break
    runs[-1]["counts"] = "yes"
    return runs


def _peers(directory, ports, origin, cached):
    vcl, bare = (manifests.CACHING, "bare-hits.vcl") if cached else (None, "bare-pass.vcl")
    at = directory / "front"
    at.mkdir(mode=0o755)
    return [
        Gateway(directory, ports[0], origin, vcl),
        # User VCL would take every request to varnishd.
        Front(at, ports[4], origin, policy=manifests.policy("") if cached else None),
        Bare(directory, ports[1], origin, bare),
        Nginx(directory, ports[2], origin, cached),
        Haproxy(directory, ports[3], origin, cached),
    ]


def check(peer, path):
    for _ in range(2):
        answer = peer.get(path)
        if answer.status != 200 or answer.body.decode() != BODY:
            raise RuntimeError(f"{peer.name} answers {path} with {answer.status}, {len(answer.body)} bytes")


def _summary(rounds, cached, path):
    names = list(dict.fromkeys(one["server"] for one in rounds))
    of = {name: [one for one in rounds if one["server"] == name and one["counts"] == "yes"] for name in names}
    keys = ("requests_per_second", "server_cpu_us_per_request", "p50_ms", "p99_ms")
    medians = {name: {key: median(one[key] for one in of[name]) for key in keys} for name in names}
    rate = {name: medians[name]["requests_per_second"] for name in names}
    gateway, bare = Gateway.name, Bare.name
    in_pairs = [
        ours["requests_per_second"] / theirs["requests_per_second"]
        for ours, theirs in zip(of[gateway], of[bare], strict=True)
    ]
    failed = sum(one["errors"] + one["not_2xx"] for one in rounds)
    # A hit does not ask the origin, a pass asks once; what wrk leaves unfinished at its end may be added.
    strays = [one for one in rounds if not _asked_rightly(one, cached)]
    disturbed = [one for runs in of.values() for one in runs if one["disturbed"] == "yes"]
    ratio = rate[gateway] / rate[bare]
    note = f" ({len(disturbed)} of {sum(map(len, of.values()))} runs disturbed)" if disturbed else ""
    kind = "cached hits" if cached else "pass"
    verdicts = [
        (f"{kind}: gateway with 10,000 routes / bare varnishd ≥ {LEAST}", f"{ratio:.3f}{note}", ratio >= LEAST),
        (f"{kind}: no failed request in any round", f"{failed} failed", failed == 0),
    ]
    peer, least = LEAST_OF_FRONT[cached]
    of_front = rate[Front.name] / rate[peer]
    cpu = medians[peer]["server_cpu_us_per_request"] / medians[Front.name]["server_cpu_us_per_request"]
    verdicts.append((f"{kind}: dataPath Auto with 10,000 routes / {peer} ≥ {least}", f"{of_front:.3f} (by CPU time {cpu:.3f}){note}", of_front >= least))
    return {
        "path": path,
        "runs": rounds,
        "medians": medians,
        "ratio_of_medians": round(ratio, 4),
        "ratio_by_round": [round(pair, 4) for pair in in_pairs],
        "median_ratio_by_round": round(median(in_pairs), 4),
        "ratio_of_cpu": round(
            medians[bare]["server_cpu_us_per_request"] / medians[gateway]["server_cpu_us_per_request"], 4
        ),
        "ratio_to_bare": {name: round(rate[name] / rate[bare], 3) for name in names},
        "runs_that_asked_the_origin_wrongly": len(strays),
        "counted_although_disturbed": len(disturbed),
        "verdicts": verdicts,
    }


def _asked_rightly(one, cached):
    if cached:
        return one["origin_requests"] <= load.CONNECTIONS
    return abs(one["origin_requests"] - one["requests"]) <= 2 * load.CONNECTIONS
