"""Measures a Gateway with many routes in a cluster of this machine (tests/cluster), and writes docs/results.

    scripts/bench cluster                    3,000 routes, then 20,000
    scripts/bench cluster --routes 3000      only so many
    scripts/bench cluster --quick            a short run, to see that the benchmark works

Builds what is missing, brings a cluster up under its own name, and takes it down again. Needs root.
"""

import argparse
import json

from ..in_cluster import scale
from ..measuring import in_cluster, report
from ..measuring.in_cluster import say


# By the most routes: milliseconds until a new route is served, milliseconds of the operator's CPU, and MiB of containers.
GOALS = [
    (3_000, {"mean": 20, "worst": 60, "cpu": 5, "mib": {"operator": 130}}),
    (20_000, {"mean": 30, "worst": 100, "cpu": 8, "mib": {"operator": 130, "chaperone": 90}}),
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routes", type=lambda text: [int(n) for n in text.split(",")], default=[3000, 20000], metavar="N[,N]")
    parser.add_argument("--more", type=int, default=50, help="new routes, one at a time, at each size")
    parser.add_argument("--patience", type=int, default=600, help="seconds that many routes may take to answer")
    given = in_cluster.arguments(parser)
    if given.quick:
        given.routes, given.more = [100, 300], 5
    return given


def verdicts(result):
    for size in result["sizes"]:
        new, routes = size["new"], f"{size['routes']:,} routes"
        yield f"{routes}: a new route answers 200", f"{new['answered']} of {len(new['each'])}", new["answered"] == len(new["each"])
        goal = next((goal for most, goal in GOALS if size["routes"] <= most), GOALS[-1][1])
        cpu = size["operator_cpu_ms_per_new_route"]
        yield f"{routes}: served within {goal['mean']} ms in the mean", f"{new['mean_ms']} ms", new["mean_ms"] <= goal["mean"]
        yield f"{routes}: served within {goal['worst']} ms at worst", f"{new['worst_ms']} ms", new["worst_ms"] <= goal["worst"]
        yield f"{routes}: at most {goal['cpu']} ms of the operator's CPU for a new one", f"{cpu} ms", cpu <= goal["cpu"]
        yield f"{routes}: only 404 before", ", ".join(new["before"]), new["before"] == ["404"]
        load = new["load"]
        yield f"{routes}: no failed request on other routes", f"{load['failed']} of {load['requests']}", load["failed"] == 0
        for what, most in goal["mib"].items():
            used = size["memory"][what]
            text = f"{used.get('container_mib')} MiB, at most {used.get('container_peak_mib')} MiB"
            yield f"{routes}: {what} below {most} MiB", text, used.get("container_mib", 999) < most


def markdown(result):
    parts = [
        *in_cluster.beginning(result, "cluster", "many routes in a cluster", "Gateway"),
        f"It took {result['minutes']} minutes.",
        *in_cluster.verdicts(result),
        "## A new route",
        "Created one at a time while other routes are asked 50 times a second. From the sending of the POST (and from the API server's "
        "answer to it) to the first 200, asked over and over.",
        report.table(
            ["routes", "mean ms", "median ms", "p90 ms", "worst ms", "mean ms from created", "answers before", "not 200 after", "operator CPU ms"],
            [
                (
                    s["routes"], s["new"]["mean_ms"], s["new"]["median_ms"], s["new"]["p90_ms"], s["new"]["worst_ms"],
                    s["new"]["mean_ms_from_created"], ", ".join(s["new"]["before"]), s["new"]["not_200_after"],
                    s["operator_cpu_ms_per_new_route"],
                )  # fmt: skip
                for s in result["sizes"]
            ],
        ),
        "## Many at once",
        report.table(
            ["routes", "created in s", "all asked answer after s", "asked", "ConfigMaps", "bytes in them", "largest"],
            [
                (
                    s["routes"], s["created_seconds"], s["all_answer_seconds"], s["asked"], len(s["config_maps"]),
                    sum(s["config_maps"].values()), max(s["config_maps"].values(), default=0),
                )  # fmt: skip
                for s in result["sizes"]
            ],
        ),
        *in_cluster.memory([("no route", result["empty"]), *((f"{s['routes']} routes", s["memory"]) for s in result["sizes"])]),
    ]
    return "\n\n".join(parts) + "\n"


def main():
    given = arguments()
    if given.inside:
        print(json.dumps(scale.measure(given.routes, given.more, given.patience, say)))
        return
    result = in_cluster.run("cluster", "bench", given)
    result["verdicts"] = list(verdicts(result))
    text = markdown(result)
    name = in_cluster.publish(result, "cluster-routes", text, given)
    say(f"\n{name}.md\n")
    say(text[text.index("## Verdicts") :].split("\n\n")[1])
