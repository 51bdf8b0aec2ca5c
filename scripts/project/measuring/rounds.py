"""Scenarios, measured in rounds: in each, all servers are started once, and take turns at every scenario."""

from . import load
from . import processes
from .servers import EchoOrigin, GrpcOrigin, Origin


def measure(directory, plan, scenarios):
    """Runs by name of scenario, or the reason why one cannot be measured."""
    runs, broken = {scenario.name: [] for scenario in scenarios}, {}
    for number in range(plan.rounds):
        # One start of varnishd differs from the next by several per cent for as long as it runs: every round has new ones.
        place = directory / f"round-{number}"
        place.mkdir(mode=0o755)
        origins, servers = start(place, scenarios)
        for scenario in scenarios:
            if scenario.name in broken:
                continue
            try:
                runs[scenario.name] += take_turns(scenario, servers, origins, number, plan)
            except (RuntimeError, OSError) as error:
                # The other scenarios are worth knowing, and one that cannot be measured is a result, too.
                broken[scenario.name] = str(error)
                plan.say(f"  {scenario.name} failed: {error}")
        for server in [*servers.values(), *origins]:
            server.end()
    return runs, broken


def start(place, scenarios):
    kinds = list(dict.fromkeys(kind for scenario in scenarios for kind in scenario.servers))
    ports = processes.free_ports(len(kinds) + 3)
    origins = [Origin(place, ports[0]).ready()]
    if any(scenario.request.entrance in ("echo", "tcp", "udp") for scenario in scenarios):
        origins.append(EchoOrigin(place, ports[1]).ready())
    if any(scenario.request.entrance == "grpc" for scenario in scenarios):
        origins.append(GrpcOrigin(place, ports[2]).ready())
    servers = {}
    for kind, port in zip(kinds, ports[3:]):
        at = place / kind.__name__.lower()
        at.mkdir(mode=0o755)
        servers[kind] = kind(at, port, *ports[:3])
    for server in servers.values():
        server.ready()
    return origins, servers


def take_turns(scenario, servers, origins, number, plan):
    # No server is always the first, or always after the same one.
    turn = number % len(scenario.servers)
    taking_part = [servers[kind] for kind in scenario.servers[turn:] + scenario.servers[:turn]]
    for server in taking_part:
        server.check(scenario.request)
    generator = scenario.generator(plan)
    if scenario.share:
        generator.rate = scenario.share * _slowest(taking_part, scenario, plan)
    runs = []
    for server in taking_part:
        if scenario.warm_up:
            load.run(generator, server, scenario.request, plan.warm_up * scenario.warm_up)
        runs += _undisturbed(generator, server, scenario, origins, number + 1, plan)
    return runs


def _slowest(servers, scenario, plan):
    """What the slowest server can do, so that all get the same share of it."""
    generator = load.Wrk(32)
    return min(load.run(generator, server, scenario.request, plan.warm_up + 1)["per_second"] for server in servers)


def _undisturbed(generator, server, scenario, origins, number, plan):
    """One run that no other process disturbed, and before it those that one did. All are published; the last one counts."""
    runs = []
    for _ in range(1 + plan.repeats):
        processes.wait_for_quiet(plan.patience)
        asked = origins[0].requests()
        result = load.run(generator, server, scenario.request, plan.seconds, origins)
        result["origin_requests"] = origins[0].requests() - asked - 1
        others = 0 if scenario.two_cores else max(result["server_core_others"], result["load_core_others"])
        result["disturbed"] = "yes" if others > processes.DISTURBED else "no"
        runs.append({"round": number, "server": server.name, "counts": "no", **result})
        busy = f"core {result['server_core_busy']:.0%} busy, {result['cpu_us']} µs each, disturbed: {result['disturbed']}"
        plan.say(f"  {scenario.name}, round {number}, {server.name}: {result['per_second']:.0f} {generator.unit}/s, {busy}")
        if result["disturbed"] == "no":
            break
    runs[-1]["counts"] = "yes"
    return runs
