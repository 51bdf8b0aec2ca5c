"""Goals of scenarios. Each says what it wants, and judges medians: (goal, measured, met)."""

from dataclasses import dataclass

from .load import BUSY
from .processes import DISTURBED

# MiB that a server may grow while a body of gibibytes goes through it.
GROWTH = 16


@dataclass
class _OfTwo:
    ours: type
    peer: type
    bound: float

    def servers(self):
        return self.ours, self.peer


class Ratio(_OfTwo):
    """Throughput of ours to the peer's where both had their core busy, else CPU time per request of the peer to ours."""

    def __str__(self):
        return f"{self.ours.name} / {self.peer.name} ≥ {self.bound}"

    def judge(self, medians):
        ours, peer = medians[self.ours.name], medians[self.peer.name]
        rate, cpu = ours["per_second"] / peer["per_second"], peer["cpu_us"] / ours["cpu_us"]
        # Not where other processes kept the core busy.
        limited = all(one["server_core_busy"] >= BUSY and one["server_core_others"] <= DISTURBED for one in (ours, peer))
        counts, by = (rate, "throughput") if limited else (cpu, "CPU time")
        return str(self), f"{rate:.3f} by throughput, {cpu:.3f} by CPU time; {by} counts", counts >= self.bound


class Cpu(_OfTwo):
    def __str__(self):
        return f"CPU time: {self.ours.name} / {self.peer.name} ≤ {self.bound}"

    def judge(self, medians):
        ratio = medians[self.ours.name]["cpu_us"] / medians[self.peer.name]["cpu_us"]
        return str(self), f"{ratio:.3f}", ratio <= self.bound


class Latency(_OfTwo):
    def __str__(self):
        return f"p99: {self.ours.name} / {self.peer.name} ≤ {self.bound}"

    def judge(self, medians):
        ours, peer = (medians[kind.name]["p99_ms"] for kind in (self.ours, self.peer))
        return str(self), f"{ours / peer:.3f} ({ours} ms, {peer} ms)", ours / peer <= self.bound


@dataclass
class Flat:
    ours: type

    def servers(self):
        return (self.ours,)

    def __str__(self):
        return f"{self.ours.name}: memory grows by at most {GROWTH} MiB"

    def judge(self, medians):
        found = medians[self.ours.name]
        growth = found["rss_most_mib"] - found["rss_before_mib"]
        return str(self), f"{growth:.1f} MiB", growth <= GROWTH
