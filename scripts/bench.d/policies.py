"""Cached hits with a cache policy: the default key, and one of parameters and headers, each beside bare varnishd."""

from statistics import median

import load
import manifests
import processes
import throughput
from servers import Bare, Gateway, Origin

ROUNDS = 5
KEY = """\
  cacheKey:
    headers: [Accept-Language, X-Device]
    queryParameters: {exclude: [utm_source]}
"""
QUERY = "?page=2&utm_source=mail&category=shoes"
HEADERS = ("Accept-Language: de", "X-Device: phone")


class Default(Gateway):
    name = "gateway, default key"


class Keyed(Gateway):
    name = "gateway, parameters and headers"
    query, headers = QUERY, HEADERS


class BareKeyed(Bare):
    name = "bare varnishd, same request"
    query, headers = QUERY, HEADERS


PAIRS = [(Default, Bare, 0.95), (Keyed, BareKeyed, 0.85)]


def policy(directory, plan):
    path, runs = f"{manifests.path()}/object", []
    for number in range(min(plan.rounds, ROUNDS)):
        place = directory / f"round-{number}"
        place.mkdir(mode=0o755)
        origin_port, *ports = processes.free_ports(5)
        origin = Origin(place, origin_port).ready()
        peers = [_start(place, kind, port, origin_port) for kind, port in zip(_kinds(), ports, strict=True)]
        for peer in peers:
            peer.ready()
            throughput.check(peer, path)
            load.wrk(peer, path, manifests.host(), plan.warm_up)
        # Nobody is always the first, or always after the same one.
        turn = number % len(peers)
        for peer in peers[turn:] + peers[:turn]:
            runs += throughput.run(peer, origin, path, number + 1, plan)
        for server in [*peers, origin]:
            server.end()
    return _summary(runs, path)


def _kinds():
    return [kind for ours, bare, _ in PAIRS for kind in (ours, bare)]


def _start(place, kind, port, origin):
    at = place / kind.__name__.lower()
    at.mkdir(mode=0o755)
    if issubclass(kind, Bare):
        return kind(at, port, origin, "bare-hits.vcl")
    return kind(at, port, origin, policy=manifests.policy(KEY if kind is Keyed else ""))


def _summary(runs, path):
    of = {kind.name: [one for one in runs if one["server"] == kind.name and one["counts"] == "yes"] for kind in _kinds()}
    keys = ("requests_per_second", "server_cpu_us_per_request", "p50_ms", "p99_ms")
    medians = {name: {key: median(one[key] for one in found) for key in keys} for name, found in of.items()}
    verdicts, ratios = [], {}
    for ours, bare, least in PAIRS:
        rate = [medians[kind.name]["requests_per_second"] for kind in (ours, bare)]
        cpu = [medians[kind.name]["server_cpu_us_per_request"] for kind in (ours, bare)]
        by_round = [
            one["requests_per_second"] / other["requests_per_second"]
            for one, other in zip(of[ours.name], of[bare.name], strict=True)
        ]
        ratio = rate[0] / rate[1]
        ratios[ours.name] = {
            "of_medians": round(ratio, 4),
            "by_round": [round(one, 4) for one in by_round],
            "of_cpu": round(cpu[1] / cpu[0], 4),
        }
        disturbed = sum(one["disturbed"] == "yes" for kind in (ours, bare) for one in of[kind.name])
        note = f" ({disturbed} of {2 * len(by_round)} runs disturbed)" if disturbed else ""
        verdicts.append((f"hits with a policy: {ours.name} / bare varnishd ≥ {least}", f"{ratio:.3f}{note}", ratio >= least))
    failed = sum(one["errors"] + one["not_2xx"] for one in runs)
    strays = sum(one["origin_requests"] > load.CONNECTIONS for one in runs)
    verdicts.append(("hits with a policy: no failed request, and the origin is not asked", f"{failed} failed, {strays} runs asked", not failed and not strays))
    return {"path": path, "runs": runs, "medians": medians, "ratios": ratios, "verdicts": verdicts}
