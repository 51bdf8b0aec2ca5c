"""Measures many Ingresses on one Varnish Service in a cluster of this machine (tests/cluster), and writes docs/results.

    scripts/bench ingress              5,000 Ingresses with 5 hosts each, and then 30 more, one at a time
    scripts/bench ingress --certificates 300    the same by HTTPS, with as many certificates
    scripts/bench ingress --quick      a short run, to see that the benchmark works

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
from ..in_cluster import many_ingresses
from ..measuring import machine, report


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingresses", type=int, default=5000)
    parser.add_argument("--more", type=int, default=30, help="new Ingresses, one at a time")
    parser.add_argument("--certificates", type=int, default=0, help="by HTTPS, with so many; with more than one, each new Ingress has its own")
    parser.add_argument("--patience", type=int, default=180, help="seconds that many may take to answer")
    parser.add_argument("--quick", action="store_true", help="little of everything; not a result")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--no-build", action="store_true", help="take the images that are there")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results", help="where results go")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.ingresses, given.more = min(given.ingresses, 100), 5
    return given


def say(line):
    print(line, file=sys.stderr, flush=True)


def outside(given):
    images = None if given.no_build else ()
    inside = run_inside(
        "bench-ingress", "scripts/bench", "ingress", "--inside", *sys.argv[1:], images=images, keep=given.keep, stdout=subprocess.PIPE
    )
    if inside.returncode != 0:
        raise SystemExit("The measurement failed.")
    return json.loads(inside.stdout)


def verdicts(result):
    new, what = result["new"], f"{result['ingresses']:,} Ingresses"
    if result["certificates"]:
        what += f" with {result['certificates']} certificates"
    yield f"{what}: one more is served", f"{new['answered']} of {len(new['each'])}", new["answered"] == len(new["each"])
    yield f"{what}: within 200 ms in the mean", f"{new['mean_ms']} ms", new["mean_ms"] <= 200
    yield f"{what}: no failed request on others", f"{new['load']['failed']} of {new['load']['requests']}", new["load"]["failed"] == 0
    yield f"{what}: all have an address", result["with_address"], result["with_address"] == result["ingresses"]


def markdown(result):
    new = result["new"]
    by_https = f", by HTTPS with {result['certificates']} certificates" if result["certificates"] else ""
    parts = [
        f"# {result['date']}: many Ingresses in a cluster{', quick' if result['quick'] else ''}",
        "Written by `scripts/bench ingress`; the same numbers are in the JSON file beside this one. One node with everything on it: "
        "API server, etcd, kubelet, operator, Varnish, origins and this client share the cores."
        + (" A quick run checks the benchmark itself: its numbers are not results." if result["quick"] else ""),
        f"```\n{result['command']}\n```",
        report.table(["", ""], list(result["machine"].items())),
        f"{result['ingresses']} Ingresses with {result['hosts_each']} hosts each{by_https}. It took {result['minutes']} minutes.",
        "## Verdicts",
        report.table(["target", "measured", "verdict"], [(t, m, report.verdict(met)) for t, m, met in result["verdicts"]]),
        "## One more Ingress",
        "Created one at a time while other hosts are asked 50 times a second. From the sending of the POST (and from the API server's answer to it) "
        "to the first 200 of its last host, asked over and over.",
        report.table(
            ["mean ms", "median ms", "p90 ms", "worst ms", "mean ms from created", "answers before", "not 200 after"],
            [(new["mean_ms"], new["median_ms"], new["p90_ms"], new["worst_ms"], new["mean_ms_from_created"], ", ".join(new["before"]), new["not_200_after"])],
        ),
        "## All of them",
        report.table(
            ["created in s", "hosts that were asked answer after s", "ConfigMaps", "bytes in them"],
            [(result["created_seconds"], result["all_answer_seconds"], len(result["config_maps"]), sum(result["config_maps"].values()))],
        ),
        "## Memory",
        "MiB. RSS is the process alone; the container is what kubelet would count (a chaperone's has varnishd, its storage and its log in it).",
        report.table(
            ["", "process", "RSS", "RSS peak", "container", "container peak"],
            [
                (what, name, one.get("rss_mib"), one.get("rss_peak_mib"), one.get("container_mib"), one.get("container_peak_mib"))
                for what, found in [("no Ingress", result["empty"]), (f"{result['ingresses']} Ingresses", result["memory"])]
                for name, one in found.items()
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main():
    given = arguments()
    if given.inside:
        print(json.dumps(many_ingresses.measure(given.ingresses, given.more, given.patience, given.certificates, say)))
        return
    begun = time.monotonic()
    result = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["scripts/bench", "ingress", *sys.argv[1:]]),
        "quick": given.quick,
        "machine": {name: value for name, value in machine.facts(REPOSITORY).items() if name not in ("nginx", "haproxy", "wrk", "varnish")},
    }
    result.update(outside(given))
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    result["verdicts"] = list(verdicts(result))
    tls = f"-tls-{given.certificates}" if given.certificates else ""
    name = f"{result['date']}-ingress{tls}{'-quick' if given.quick else ''}"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (given.out / f"{name}.md").write_text(markdown(result))
    for target, measured, met in result["verdicts"]:
        say(f"{'met   ' if met else 'MISSED'}  {target}: {measured}")
    say(f"{given.out / name}.md")
