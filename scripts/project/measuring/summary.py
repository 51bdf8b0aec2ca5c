"""Runs of a scenario to medians and verdicts."""

from statistics import median

KEYS = ("per_second", "cpu_us", "p50_ms", "p99_ms", "mean_ms", "server_core_busy", "server_core_others", "load_core_busy", "rss_before_mib", "rss_most_mib", "sent_late_p99_ms")

# Twice the most connections.
UNFINISHED = 512


def summary(scenario, plan, runs):
    counting = {
        kind.name: [run for run in runs if run["server"] == kind.name and run["counts"] == "yes"] for kind in scenario.servers
    }
    medians = {name: _medians(found) for name, found in counting.items()}
    failed = sum(run["failed"] for run in runs)
    strays = sum(not _asked_rightly(run, scenario) for run in runs)
    disturbed = [run for found in counting.values() for run in found if run["disturbed"] == "yes"]
    note = f" ({len(disturbed)} runs disturbed)" if disturbed else ""
    verdicts = [goal.judge(medians) for goal in scenario.goals]
    verdicts = [(f"{scenario.name}: {goal}", measured + note, met) for goal, measured, met in verdicts]
    if failed or strays:
        verdicts.append((f"{scenario.name}: no request fails, the origin is asked as often as it should be", f"{failed} failed, {strays} runs", False))
    return {
        "title": scenario.title,
        "request": vars(scenario.request),
        "load": str(scenario.generator(plan)),
        "unit": scenario.generator(plan).unit,
        "note": scenario.note,
        "medians": medians,
        "by_round": {str(goal): _by_round(goal, counting) for goal in scenario.goals if len(goal.servers()) == 2},
        "runs": runs,
        "verdicts": verdicts,
    }


def _medians(runs):
    known = {key: [run[key] for run in runs if run.get(key) is not None] for key in KEYS}
    return {key: round(median(values), 3) for key, values in known.items() if values}


def _by_round(goal, counting):
    """Ratios of throughput of the rounds, which show how far they differ."""
    pairs = zip(*(counting[kind.name] for kind in goal.servers()), strict=True)
    return [round(ours["per_second"] / peer["per_second"], 3) for ours, peer in pairs]


def _asked_rightly(run, scenario):
    """A hit asks the origin never, an uncached request once; requests that a load generator leaves unfinished may be added."""
    if scenario.asks_origin is None:
        return True
    if not scenario.asks_origin:
        return run["origin_requests"] <= UNFINISHED
    return abs(run["origin_requests"] - run["count"]) <= UNFINISHED
