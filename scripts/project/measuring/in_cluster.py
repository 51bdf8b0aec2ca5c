"""What benchmarks in a cluster of this machine share: options, the run inside of the cluster, and what is written to docs/results."""

import argparse
import datetime
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ..cluster import REPOSITORY, run_inside
from . import machine, report

# Programs that take no part.
ABSENT = ("nginx", "haproxy", "wrk", "varnish")


def arguments(parser):
    parser.add_argument("--quick", action="store_true", help="little of everything; not a result")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--no-build", action="store_true", help="take the images that are there")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results", help="where results go")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def say(line):
    print(line, file=sys.stderr, flush=True)


def run(part, cluster, given):
    """What `scripts/bench PART --inside` found in the cluster of that name, with when, where and how it was measured."""
    begun = time.monotonic()
    result = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["scripts/bench", part, *sys.argv[1:]]),
        "quick": given.quick,
        "machine": {name: value for name, value in machine.facts(REPOSITORY).items() if name not in ABSENT},
    }
    images = None if given.no_build else ()
    inside = run_inside(
        cluster, "scripts/bench", part, "--inside", *sys.argv[1:], images=images, keep=given.keep, stdout=subprocess.PIPE
    )
    if inside.returncode != 0:
        raise SystemExit("The measurement failed.")
    result.update(json.loads(inside.stdout))
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    return result


def publish(result, what, text, given):
    """Writes both files, and returns their path without the ending."""
    name = given.out / f"{result['date']}-{what}{'-quick' if given.quick else ''}"
    given.out.mkdir(parents=True, exist_ok=True)
    Path(f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{name}.md").write_text(text)
    return name


def beginning(result, part, title, server):
    """The first paragraphs of a report."""
    return [
        f"# {result['date']}: {title}{', quick' if result['quick'] else ''}",
        f"Written by `scripts/bench {part}`; the same numbers are in the JSON file beside this one. One node with everything on it: "
        f"API server, etcd, kubelet, operator, {server}, origins and this client share the cores."
        + (" A quick run checks the benchmark itself: its numbers are not results." if result["quick"] else ""),
        f"```\n{result['command']}\n```",
        report.table(["", ""], list(result["machine"].items())),
    ]


def verdicts(result):
    return [
        "## Verdicts",
        report.table(["target", "measured", "verdict"], [(t, m, report.verdict(met)) for t, m, met in result["verdicts"]]),
    ]


def memory(found):
    """Of pairs: with what, and the processes' memory."""
    return [
        "## Memory",
        "MiB. RSS is the process alone; the container is what kubelet would count (a chaperone's has varnishd, its storage and its log in it).",
        report.table(
            ["", "process", "RSS", "RSS peak", "container", "container peak"],
            [
                (what, name, one.get("rss_mib"), one.get("rss_peak_mib"), one.get("container_mib"), one.get("container_peak_mib"))
                for what, processes in found
                for name, one in processes.items()
            ],
        ),
    ]
