"""Processes that the benchmark starts: on which core, what they use, and how they end."""

import ctypes
import itertools
import os
import random
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
# Of a core, taken by processes that are not part of the measurement.
DISTURBED = 0.05

_libc = ctypes.CDLL(None)
_started = []
_ports = itertools.cycle(random.sample(range(10_000, 32_000), 22_000))


def cores():
    """Which core is whose, the same for every peer: (server, load generator, origin)."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SystemExit("The benchmark needs two cores: one for the server, one for load and origin.")
    # With four cores a server with two threads shares none with the load.
    return (allowed[0], *allowed[2:4]) if len(allowed) > 3 else (allowed[0], allowed[1], allowed[-1])


def server_cores(threads=1):
    return sorted(os.sched_getaffinity(0))[:threads]


def origin_cores():
    return [cores()[2]]


def start(command, cores, log, **options):
    """Starts a process on the given cores. It ends with end() or end_all(), or when this process ends, in whatever way."""

    def prepare():
        os.sched_setaffinity(0, cores)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", log),
        stderr=log,
        start_new_session=True,  # Ctrl-C is ours to handle.
        preexec_fn=prepare,
        **options,
    )
    _started.append(process)
    return process


def end(process):
    """Asks, waits, insists; and leaves no descendant behind."""
    family = {pid: _begun(pid) for pid in tree(process.pid)[1:]}
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 5
    while family and time.monotonic() < deadline:
        family = {pid: begun for pid, begun in family.items() if begun and _begun(pid) == begun}
        time.sleep(0.02)
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    if process in _started:
        _started.remove(process)


def end_all():
    for process in reversed(_started[:]):
        end(process)


def tree(pid):
    """The process and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                children += Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid] + [below for child in children for below in tree(int(child))]


def _stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _begun(pid):
    stat = _stat(pid)
    return stat[19] if stat and stat[0] != "Z" else None


def cpu_seconds(pid):
    """CPU time of the process and all that descend from it."""
    stats = [stat for stat in map(_stat, tree(pid)) if stat]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS


def core_seconds(core):
    """Seconds that a core was busy, or stolen by the hypervisor."""
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == f"cpu{core}":
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words[1:9])
            return (user + nice + system + irq + softirq) / TICKS, steal / TICKS
    return 0.0, 0.0


def wait_for_quiet(seconds):
    """While none of ours works, waits until no other process does: whether the cores were idle within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = [core_seconds(core)[0] for core in cores()]
        time.sleep(0.5)
        if all(core_seconds(core)[0] - was < 0.5 * DISTURBED for core, was in zip(cores(), before)):
            return True
    return False


def memory(pid):
    """MiB of the process and all that descend from it; PSS counts shared pages once."""
    sums = {"rss": 0, "pss": 0, "pss_anon": 0, "processes": {}}
    for member in tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            name = Path(f"/proc/{member}/comm").read_text().strip()
        except OSError:
            continue
        kib = {words[0]: int(words[1]) for words in (line.split() for line in lines[1:])}
        sums["rss"] += kib["Rss:"] / 1024
        sums["pss"] += kib["Pss:"] / 1024
        sums["pss_anon"] += kib.get("Pss_Anon:", 0) / 1024
        sums["processes"][f"{name}[{len(sums['processes'])}]"] = round(kib["Pss:"] / 1024, 1)
    return sums


def free_ports(count, address="127.0.0.1"):
    """Ports below those that the kernel gives to outgoing connections. None is given twice."""
    found = []
    while len(found) < count:
        port = next(_ports)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
        found.append(port)
    return found


def allow_many_files():
    """For thousands of connections; servers inherit it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def rss(pids):
    """MiB of the processes together; quicker than memory()."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def wait_for(condition, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"{what} did not happen within {seconds:.0f} s")
