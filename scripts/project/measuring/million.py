"""A million objects, with hot objects and without. Filling a cache takes minutes, so the servers are started once for all rounds."""

from . import entrances
from . import load
from . import rounds
from . import summary
from .goals import Ratio
from .scenarios import Scenario
from .servers import FrontOfAMillion, FrontOfAMillionWithoutHot

SCENARIO = Scenario(
    "hot-million",
    "A million objects of 1 KiB, asked for evenly, 32 connections, with hot objects of at most 50 MiB and without",
    entrances.HITS_NUMBERED,
    lambda plan: load.Wrk(32, "evenly.lua"),
    [FrontOfAMillion, FrontOfAMillionWithoutHot],
    [Ratio(FrontOfAMillion, FrontOfAMillionWithoutHot, 0.98)],
    asks_origin=False,
    note="All objects are in varnishd's cache before the first run. Each is asked for too seldom to become hot.",
)


def million(directory, plan):
    origins, servers = rounds.start(directory, [SCENARIO])
    runs = []
    for number in range(plan.rounds):
        runs += rounds.take_turns(SCENARIO, servers, origins, number, plan)
    return summary.summary(SCENARIO, plan, runs)
