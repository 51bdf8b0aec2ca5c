"""VarnishCacheInvalidations on a whole cluster of this machine (tests/cluster): three pods, and pods that come and go.

    scripts/test invalidation            all
    scripts/test invalidation --no-build take the images that are there (NO_BUILD=1, too)

The commands `purge` and `ban` are those of target/release or target/debug, whichever is newer. Brings a cluster up under its own name, and takes it down again (KEEP=1: not). Needs root.
"""

import json
import os
import subprocess
import sys
import time

from ..cluster import kubectl, run_inside, say, until
from ..in_cluster.invalidation import HOST, begin, cache, command, create, ended, get, pods, warm, write


def inside():
    begin()
    there = pods()
    warm(there.values())
    warm(there.values(), "/other")
    create("one")
    status = ended("one")
    assert status["phase"] == "Complete" and status["message"] == "3 of 3 pods", status
    assert sorted(result["podName"] for result in status["podResults"]) == sorted(there), status
    assert all(result["pathResults"][0]["message"] == "1 object" for result in status["podResults"]), status
    for address in there.values():
        assert cache(address, "/other") == "HIT"
        assert cache(address) == "MISS"
    say("a purge reached three pods")

    create("bad", type="Ban", paths=["^/other", "("])
    status = ended("bad")
    assert status["phase"] == "Failed" and "Regex" in status["message"], status
    assert [result["success"] for result in status["podResults"][0]["pathResults"]] == [True, False], status
    for address in there.values():
        assert cache(address, "/other") == "MISS"
    say("a ban reached three pods, and a bad expression is named")

    by_command(there)
    writes(there, "the front")

    create("lost", gatewayRef={"name": "nobody"})
    assert ended("lost")["phase"] == "Failed"

    say("a pod is killed, and another one comes, while an invalidation runs")
    victim = sorted(there)[0]
    kubectl("-n", "invalidation", "delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
    create("killed")
    status = ended("killed")
    assert status["phase"] == "Complete", status
    until("three pods again", lambda: len(pods()) == 3)
    new = sorted(set(pods()) - set(there))
    assert len(new) == 1, new
    kubectl("-n", "invalidation", "logs", new[0], check=False)
    told = {result["podName"] for name in ("one", "bad") for result in get("vcinv", name)["status"]["podResults"]}
    assert new[0] not in told, f"{new[0]} replayed what was there before it"
    say("it came to an end, and the new pod replayed nothing")

    say("a container is killed, and the operator with it")
    kubectl("-n", "varnish-gateway-system", "delete", "pod", "--all", "--grace-period=0", "--force")
    # Those of pods that are being deleted may end by themselves.
    until("three chaperones", lambda: len(chaperones()) == 3)
    pids = chaperones()
    subprocess.run(["kill", "-9", pids[0]], check=True)
    create("without-operator")
    status = ended("without-operator", 90)
    assert status["phase"] == "Complete", status

    by_varnishd()

    say("no pods at all")
    kubectl("-n", "invalidation", "scale", "deploy/gw", "--replicas=0")
    until("no pods", lambda: not pods())
    create("nobody")
    status = ended("nobody")
    assert status["phase"] == "Complete" and "No pod" in status["message"], status

    create("short", ttl="1s")
    until("it is swept away", lambda: "short" not in kubectl("-n", "invalidation", "get", "vcinv", "-o", "name"))
    print(kubectl("-n", "invalidation", "get", "vcinv", "-o", "wide"))
    say("all is well")
    return 0


def writes(there, who):
    """What a POST through one pod changes leaves the caches of all: docs/adr/0087."""
    warm(there.values())
    warm(there.values(), "/other")
    first, *others = there.values()
    assert write(first, "/") == 200
    assert cache(first) == "MISS", "the pod itself"
    # 50 milliseconds and the way through the network are the bound; a pod of a busy machine gets more time.
    time.sleep(2)
    for address in others:
        assert cache(address) == "MISS", f"{address} has not heard of a write, carried by {who}"
        assert cache(address, "/other") == "HIT"
    say(f"a write through one pod, carried by {who}, left the caches of three")


def by_varnishd():
    """The same where varnishd has the ports. Pods roll for it."""
    before = set(pods())
    patch = json.dumps({"spec": {"dataPath": "Varnish"}})
    kubectl("-n", "invalidation", "patch", "gatewayclassparameters", "three", "--type=merge", "-p", patch)
    until("three new pods", lambda: len(pods()) == 3 and not before & set(pods()))
    there = pods()
    for address in there.values():
        until("they serve", lambda: cache(address) in ("HIT", "MISS"))
    writes(there, "varnishd")


def chaperones():
    return subprocess.run(["pgrep", "-f", "varnish-gateway chaperone"], capture_output=True, text=True).stdout.split()


def by_command(there):
    warm(there.values())
    warm(there.values(), "/other")
    code, text = command("purge", "--namespace", "invalidation", HOST, "/")
    assert code == 0 and "Gateway invalidation/gw: Complete: 3 of 3 pods" in text, text
    assert all(f"pod {name}: 1 object purged" in text for name in there), text
    for address in there.values():
        assert cache(address, "/other") == "HIT"
        assert cache(address) == "MISS"
    # Without a `serve` of ours the cluster of the current kubeconfig is meant.
    code, text = command("--log", "json", "ban", "--gateway", "invalidation/gw", HOST, "^/oth", "(")
    line = json.loads(text)
    assert code == 1 and line["phase"] == "Failed" and len(line["podResults"]) == 3, text
    assert [result["success"] for result in line["podResults"][0]["pathResults"]] == [True, False], text
    for address in there.values():
        assert cache(address, "/other") == "MISS"
    code, text = command("purge", "--gateway", "invalidation/nobody", HOST, "/")
    assert code == 1 and "nobody" in text, text
    code, text = command("purge", "--namespace", "default", HOST, "/")
    assert code == 1 and "--gateway" in text, text
    say("purge and ban as commands reached three pods")


def main():
    if "--inside" in sys.argv:
        return inside()
    images = None if "--no-build" in sys.argv or os.environ.get("NO_BUILD") else ()
    return run_inside("invalidation", "scripts/test", "invalidation", "--inside", images=images).returncode
