"""Measures a Gateway with many routes in a cluster of this machine (tests/cluster), and writes docs/results.

    scripts/bench cluster                    3,000 routes, then 20,000
    scripts/bench cluster --routes 3000      only so many
    scripts/bench cluster --quick            a short run, to see that the benchmark works

Builds what is missing, brings a cluster up under its own name, and takes it down again. Needs root.
"""

import argparse
import datetime
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ..cluster import REPOSITORY, run_inside
from ..in_cluster import scale
from ..measuring import machine, report


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routes", type=lambda text: [int(n) for n in text.split(",")], default=[3000, 20000], metavar="N[,N]")
    parser.add_argument("--more", type=int, default=50, help="new routes, one at a time, at each size")
    parser.add_argument("--patience", type=int, default=600, help="seconds that many routes may take to answer")
    parser.add_argument("--quick", action="store_true", help="little of everything; not a result")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--no-build", action="store_true", help="take the images that are there")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results", help="where results go")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.routes, given.more = [100, 300], 5
    return given


def say(line):
    print(line, file=sys.stderr, flush=True)


def outside(given):
    images = None if given.no_build else ()
    inside = run_inside(
        "bench", "scripts/bench", "cluster", "--inside", *sys.argv[1:], images=images, keep=given.keep, stdout=subprocess.PIPE
    )
    if inside.returncode != 0:
        raise SystemExit("The measurement failed.")
    return json.loads(inside.stdout)


def verdicts(result):
    for size in result["sizes"]:
        new, routes = size["new"], f"{size['routes']:,} routes"
        yield f"{routes}: a new route answers 200", f"{new['answered']} of {len(new['each'])}", new["answered"] == len(new["each"])
        if size["routes"] <= 3000:
            yield f"{routes}: within 100 ms in the mean", f"{new['mean_ms']} ms", new["mean_ms"] <= 100
        yield f"{routes}: only 404 before", ", ".join(new["before"]), new["before"] == ["404"]
        load = new["load"]
        yield f"{routes}: no failed request on other routes", f"{load['failed']} of {load['requests']}", load["failed"] == 0
        if size["routes"] <= 3000:
            used = size["memory"]["operator"]
            text = f"{used.get('container_mib')} MiB, at most {used.get('container_peak_mib')} MiB"
            yield f"{routes}: operator below 150 MiB", text, used.get("container_mib", 999) < 150
    return


def markdown(result):
    parts = [
        f"# {result['date']}: many routes in a cluster{', quick' if result['quick'] else ''}",
        "Written by `scripts/bench cluster`; the same numbers are in the JSON file beside this one. One node with everything on it: "
        "API server, etcd, kubelet, operator, Gateway, origins and this client share the cores."
        + (" A quick run checks the benchmark itself: its numbers are not results." if result["quick"] else ""),
        f"```\n{result['command']}\n```",
        report.table(["", ""], list(result["machine"].items())),
        f"It took {result['minutes']} minutes.",
        "## Verdicts",
        report.table(["target", "measured", "verdict"], [(t, m, report.verdict(met)) for t, m, met in result["verdicts"]]),
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
        "## Memory",
        "MiB. RSS is the process alone; the container is what kubelet would count (a chaperone's has varnishd, its storage and its log in it).",
        report.table(
            ["", "process", "RSS", "RSS peak", "container", "container peak"],
            [
                (what, name, one.get("rss_mib"), one.get("rss_peak_mib"), one.get("container_mib"), one.get("container_peak_mib"))
                for what, found in [("no route", result["empty"]), *((f"{s['routes']} routes", s["memory"]) for s in result["sizes"])]
                for name, one in found.items()
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main():
    given = arguments()
    if given.inside:
        print(json.dumps(scale.measure(given.routes, given.more, given.patience, say)))
        return
    begun = time.monotonic()
    result = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["scripts/bench", "cluster", *sys.argv[1:]]),
        "quick": given.quick,
        "machine": {name: value for name, value in machine.facts(REPOSITORY).items() if name not in ("nginx", "haproxy", "wrk", "varnish")},
    }
    result.update(outside(given))
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    result["verdicts"] = list(verdicts(result))
    name = f"{result['date']}-cluster-routes{'-quick' if given.quick else ''}"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (given.out / f"{name}.md").write_text(text)
    say(f"\n{given.out / name}.md\n")
    say(text[text.index("## Verdicts") :].split("\n\n")[1])
