"""The router alone, by Criterion: its own benchmark, run and copied."""

import os
import re
import subprocess

from . import processes

MOST = 2.0


def router(directory, plan):
    environment = {**os.environ, "CARGO_TERM_COLOR": "never"}
    bench = ["cargo", "bench", "-p", "router", "--bench", "lookup"]
    subprocess.run([*bench, "--no-run"], cwd=plan.repository, env=environment, check=True)
    short = ["--", "--warm-up-time", "0.2", "--measurement-time", "0.5", "--sample-size", "10"] if plan.quick else []
    with open(directory / "router.log", "ab+") as log:
        run = processes.start(
            bench + short, processes.server_cores(), log, stdout=subprocess.PIPE, cwd=plan.repository, env=environment
        )
        text = run.communicate(timeout=900)[0].decode()
        processes.end(run)
    ratio = re.search(r"ratio lookup 100000/10 routes: ([\d.]+)", text)
    if run.returncode != 0 or not ratio:
        raise RuntimeError(f"cargo bench -p router said:\n{text[-2000:]}")
    # Long names stand on a line of their own.
    times = re.findall(r"^(\S[^\n]*?)\s+time:\s+\[(\S+ \S+) (\S+ \S+) (\S+ \S+)\]", text, re.M)
    return {
        "command": " ".join(bench + short),
        "times": [{"name": name.strip(), "low": low, "middle": middle, "high": high} for name, low, middle, high in times],
        "said": [line for line in text.splitlines() if line.startswith(("lookup, prefix, median", "ratio lookup"))],
        "ratio": float(ratio.group(1)),
        "verdicts": [
            (
                f"router: lookup at 100,000 routes / at 10 routes ≤ {MOST:.0f}",
                ratio.group(1),
                float(ratio.group(1)) <= MOST,
            )
        ],
    }
