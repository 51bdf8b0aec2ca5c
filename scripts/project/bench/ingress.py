"""Measures many Ingresses on one Varnish Service in a cluster of this machine (tests/cluster), and writes docs/results.

    scripts/bench ingress              5,000 Ingresses with 5 hosts each, and then 30 more, one at a time
    scripts/bench ingress --certificates 300    the same by HTTPS, with as many certificates
    scripts/bench ingress --quick      a short run, to see that the benchmark works

Builds what is missing, brings a cluster up under its own name, and takes it down again. Needs root.
"""

import argparse
import json

from ..in_cluster import many_ingresses
from ..measuring import in_cluster, report
from ..measuring.in_cluster import say


MEAN_MS = 25
MOST_MIB = 110


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingresses", type=int, default=5000)
    parser.add_argument("--more", type=int, default=30, help="new Ingresses, one at a time")
    parser.add_argument("--certificates", type=int, default=0, help="by HTTPS, with so many; with more than one, each new Ingress has its own")
    parser.add_argument("--patience", type=int, default=180, help="seconds that many may take to answer")
    given = in_cluster.arguments(parser)
    if given.quick:
        given.ingresses, given.more = min(given.ingresses, 100), 5
    return given


def verdicts(result):
    new, what = result["new"], f"{result['ingresses']:,} Ingresses"
    if result["certificates"]:
        what += f" with {result['certificates']} certificates"
    yield f"{what}: one more is served", f"{new['answered']} of {len(new['each'])}", new["answered"] == len(new["each"])
    yield f"{what}: within {MEAN_MS} ms in the mean", f"{new['mean_ms']} ms", new["mean_ms"] <= MEAN_MS
    for part in ("operator", "chaperone"):
        used = result["memory"][part].get("container_mib")
        yield f"{what}: {part} below {MOST_MIB} MiB", f"{used} MiB", used is not None and used < MOST_MIB
    yield f"{what}: no failed request on others", f"{new['load']['failed']} of {new['load']['requests']}", new["load"]["failed"] == 0
    yield f"{what}: all have an address", result["with_address"], result["with_address"] == result["ingresses"]


def markdown(result):
    new = result["new"]
    by_https = f", by HTTPS with {result['certificates']} certificates" if result["certificates"] else ""
    parts = [
        *in_cluster.beginning(result, "ingress", "many Ingresses in a cluster", "Varnish"),
        f"{result['ingresses']} Ingresses with {result['hosts_each']} hosts each{by_https}. It took {result['minutes']} minutes.",
        *in_cluster.verdicts(result),
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
        *in_cluster.memory([("no Ingress", result["empty"]), (f"{result['ingresses']} Ingresses", result["memory"])]),
    ]
    return "\n\n".join(parts) + "\n"


def main():
    given = arguments()
    if given.inside:
        print(json.dumps(many_ingresses.measure(given.ingresses, given.more, given.patience, given.certificates, say)))
        return
    result = in_cluster.run("ingress", "bench-ingress", given)
    result["verdicts"] = list(verdicts(result))
    tls = f"-tls-{given.certificates}" if given.certificates else ""
    name = in_cluster.publish(result, f"ingress{tls}", markdown(result), given)
    for target, measured, met in result["verdicts"]:
        say(f"{'met   ' if met else 'MISSED'}  {target}: {measured}")
    say(f"{name}.md")
