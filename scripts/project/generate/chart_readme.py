"""Writes charts/varnish-gateway/README.md out of the comments in values.yaml.

    scripts/generate chart-readme            writes
    scripts/generate chart-readme --check    fails where the file is not what would be written

A value is described by the line `# -- …` above it. Every value has one.
"""

import re
import sys

from ..cluster import REPOSITORY

CHART = REPOSITORY / "charts/varnish-gateway"

HEAD = """# varnish-gateway

The Kubernetes Gateway API and Ingress on Varnish Cache: CRDs, the operator with its rights, a GatewayClass and, if asked for, an IngressClass,
monitors, dashboards and a NetworkPolicy. Written by scripts/generate chart-readme out of values.yaml: do not edit.

The CRDs of the Gateway API itself come first, from its own release. Then:

    helm install varnish-gateway charts/varnish-gateway --namespace varnish-gateway-system --create-namespace

Any release name and namespace will do, also one with the label `pod-security.kubernetes.io/enforce: restricted`.

## Twice in one cluster

A second release takes a class of its own. Neither touches Gateways, Ingresses, statuses or objects of the other:

    helm install blue charts/varnish-gateway --namespace blue --create-namespace --set gatewayClass.name=blue

## Upgrade

`helm upgrade` brings CRDs up to date before anything else, by a Job (`crds.upgrade`); without it:

    kubectl apply --server-side --force-conflicts -f charts/varnish-gateway/crds

The operator is replaced first; then the Gateways' pods roll, each after the next one is ready. No request fails.

## Uninstall

`helm uninstall` first deletes, by a Job (`cleanUp.enabled`), what the operator has made for Gateways and IngressClasses: their pods end. Gateways, routes
and policies are yours and stay, and so do the CRDs:

    kubectl delete crd gatewayclassparameters.gateway.varnish-software.com varnishcachepolicies.gateway.varnish-software.com varnishcacheinvalidations.gateway.varnish-software.com

## Values

| value | default | |
|---|---|---|
"""


def rows(text):
    """(path, default, description) of each value. One that is a tree and has a description is described as a whole."""
    path, described, found, skip = [], None, [], None
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r" *# -- (.*)", line)
        if comment:
            described = comment[1]
            continue
        key = re.match(r"( *)([A-Za-z]\w*):(.*)", line)
        if not key:
            continue
        depth, name, value = len(key[1]) // 2, key[2], key[3].strip()
        if skip is not None and depth > skip:
            continue
        skip = None
        path = path[:depth] + [name]
        if described is None and value:
            raise SystemExit(f"values.yaml:{number}: {'.'.join(path)} has no line `# -- …` above it")
        if described is not None:
            if not value:
                value, skip = "see values.yaml", depth
            found.append((".".join(path), value, described))
        described = None
    return found


def main():
    text = (CHART / "values.yaml").read_text()
    told = lambda value: "" if value == '""' else value if " " in value else f"`{value}`"
    table = "".join(f"| `{path}` | {told(value)} | {what} |\n" for path, value, what in rows(text))
    wanted, file = HEAD + table, CHART / "README.md"
    if sys.argv[1:] == ["--check"]:
        if not file.exists() or file.read_text() != wanted:
            raise SystemExit(f"{file}: not what values.yaml says: run scripts/generate chart-readme")
    elif sys.argv[1:]:
        raise SystemExit("usage: scripts/generate chart-readme [--check]")
    else:
        file.write_text(wanted)
