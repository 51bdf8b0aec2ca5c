"""Memory and CPU time of the operator's and the Gateway's containers, as the kernel counts them."""

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
TICKS = os.sysconf("SC_CLK_TCK")


def processes():
    """(pid, words of its command line) of whatever runs in the cluster's pid namespace."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            yield int(entry.name), [word.decode(errors="replace") for word in words if word]


def of(command):
    """pids of `varnish-gateway COMMAND`."""
    return [pid for pid, words in processes() if words[1:2] == [command] and words[0].endswith("varnish-gateway")]


def _field(pid, file, name):
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup(pid):
    """What the pid's container holds: working set (as kubelet counts it) and peak."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            folder = CGROUPS / "memory" / path.lstrip("/")
            used, peak, stat, inactive = "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.stat", "total_inactive_file"
        elif controllers == "" and (CGROUPS / "cgroup.controllers").exists():
            folder = CGROUPS / path.lstrip("/")
            used, peak, stat, inactive = "memory.current", "memory.peak", "memory.stat", "inactive_file"
        else:
            continue
        stats = dict(line.split() for line in (folder / stat).read_text().splitlines())
        working = int((folder / used).read_text()) - int(stats.get(inactive, 0))
        return working, int((folder / peak).read_text())
    return 0, 0


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def sample(command):
    """The first container of that command, in MiB; its process alone, and the whole container."""
    pids = of(command)
    if not pids:
        return {"missing": True}
    pid = pids[0]
    working, peak = _cgroup(pid)
    mib = lambda number: round(number / 2**20, 1)  # noqa: E731
    return {
        "rss_mib": mib(_field(pid, "status", "VmRSS")),
        "rss_peak_mib": mib(_field(pid, "status", "VmHWM")),
        "container_mib": mib(working),
        "container_peak_mib": mib(peak),
        "cpu_seconds": round(_cpu_seconds(pid), 2),
        "containers": len(pids),
    }
