"""Alerts and Grafana's dashboards ask for metrics that the reference lists."""

import json
import re

import yaml
from .pages import DOCS, REPOSITORY

PAGE = DOCS / "reference/metrics.md"
ALERTS = DOCS / "reference/alerts.yaml"
DASHBOARDS = REPOSITORY / "charts/varnish-gateway/dashboards"
# Counters of varnishstat are named by a rule, not one by one.
VARNISHD = re.compile(r"varnish_(?!gateway_)[a-z]+_\w+")
HISTOGRAM = ("_bucket", "_sum", "_count")


def known():
    """Names as the reference has them, with what a histogram adds."""
    text = PAGE.read_text()
    names = set(re.findall(r"\b(varnish_\w+)", text))
    histograms = set(re.findall(r"^\| `(varnish_\w+)[^`]*` \| histogram \|", text, re.M))
    if len(names) < 10 or not histograms:
        raise SystemExit(f"scripts/generate docs: {PAGE.relative_to(REPOSITORY)} is not in the form that this script reads")
    return names - histograms | {name + end for name in histograms for end in HISTOGRAM}


def asked(text):
    return set(re.findall(r"\bvarnish_\w+", text))


def expressions():
    """(where, expression) of all."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"{ALERTS.relative_to(REPOSITORY)}: {rule['alert']}", rule["expr"]
    for path in sorted(DASHBOARDS.glob("*.json")):
        for expression in strings(json.loads(path.read_text())):
            yield str(path.relative_to(REPOSITORY)), expression


def strings(value):
    """Of queries, wherever they are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "query") and isinstance(inner, str):
                yield inner
            else:
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def problems():
    names, found = known(), 0
    for where, expression in expressions():
        for metric in sorted(asked(expression)):
            found += 1
            if metric not in names and not VARNISHD.fullmatch(metric):
                yield f"{where}: {metric} is not in {PAGE.relative_to(REPOSITORY)}"
    if found < 50:
        yield f"scripts/generate docs: only {found} uses of metrics were found in alerts and dashboards: is their form another one now?"
