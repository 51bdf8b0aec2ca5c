"""What was measured on, and with which versions."""

import os
import re
import subprocess
from pathlib import Path


def said(command, pattern):
    """The part of a program's output that the pattern's group names."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1) if found else "unknown"


def _first(file, pattern):
    found = re.search(pattern, Path(file).read_text())
    return found.group(1).strip() if found else "unknown"


def facts(repository):
    git = ["git", "-C", str(repository)]
    commit = said([*git, "rev-parse", "--short=12", "HEAD"], r"(\S+)")
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True).stdout.strip()
    return {
        "cores": os.cpu_count(),
        "cpu": _first("/proc/cpuinfo", r"model name\s*:(.*)"),
        "memory": f"{int(_first('/proc/meminfo', r'MemTotal:(.*)kB')) / 2**20:.1f} GiB",
        "kernel": os.uname().release,
        "system": _first("/etc/os-release", r'PRETTY_NAME="?([^"\n]*)'),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "varnish": said(["varnishd", "-V"], r"varnish-(\S+)"),
        "nginx": said(["nginx", "-v"], r"nginx/(\S+)"),
        "haproxy": said(["haproxy", "-v"], r"version (\S+)"),
        "wrk": said(["wrk", "-v"], r"wrk (\S+)"),
        "rustc": said(["rustc", "-V"], r"rustc (\S+)"),
        "commit": commit + (" and uncommitted changes" if changed else ""),
    }


def more_facts(envoy):
    """Of programs that only `scripts/bench` uses."""
    return {
        "envoy": said([envoy, "--version"], r"/(\d+\.[\d.]+)/") if envoy else "not given",
        "h2load": said(["h2load", "--version"], r"nghttp2/(\S+)"),
    }
