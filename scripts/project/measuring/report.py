"""Numbers to Markdown. Every verdict is computed where the numbers are; nothing here is an opinion."""


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" for _ in header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def verdict(met):
    return "met" if met else "not met"


def markdown(result):
    parts = [
        f"# {result['date']}: one machine{', quick' if result['quick'] else ''}",
        "Written by `scripts/bench`; the same numbers are in the JSON file beside this one."
        + (" A quick run checks the benchmark itself: its numbers are not results." if result["quick"] else ""),
        f"```\n{result['command']}\n```",
        table(["", ""], [(name, value) for name, value in result["machine"].items()]),
        f"Server on core {result['cores'][0]}, load on core {result['cores'][1]}, origin on core {result['cores'][2]}: the same for every "
        f"peer. {result['rounds']} rounds of {result['seconds']} s, interleaved; medians. It took {result['minutes']} minutes.",
        "The gateway has 10,000 HTTPRoutes and 10,000 endpoints, the peers one route; configurations are in scripts/project/measuring. Throughput decides where "
        f"the cores of both servers were at least {result['busy']:.0%} busy; else load or origin were the limit, and CPU time per request decides. "
        "A run that other processes disturbed (more than 5 % of a core) is repeated, twice at most, and the last one counts. `busy`, `others` and "
        "`stolen` are shares of the time; `others` are processes that are not part of the measurement.",
        "## Verdicts",
        table(
            ["target", "measured", "verdict"],
            [
                (target, measured, verdict(met))
                for part in result["parts"].values()
                for target, measured, met in part.get("verdicts", [])
            ],
        ),
    ]
    for name, part in result["parts"].items():
        write = PARTS.get(name, scenario)
        parts.append(write(part) if "failed" not in part else f"## {name}\n\nIt failed: {part['failed']}")
    return "\n\n".join(parts) + "\n"


def scenario(part):
    unit = part["unit"]
    one = unit.removesuffix("s") if unit != "MiB" else unit
    columns = {
        "per_second": f"{unit}/s", "cpu_us": f"server CPU µs/{one}", "server_core_busy": "server's core busy", "load_core_busy": "load's core busy",
        "p50_ms": "p50 ms", "p99_ms": "p99 ms", "mean_ms": "mean ms", "rss_most_mib": "RSS MiB, most",
    }  # fmt: skip
    known = [key for key in columns if any(key in found for found in part["medians"].values())]
    medians = [(name, *(found.get(key, "") for key in known)) for name, found in part["medians"].items()]
    by_round = [(goal, ", ".join(f"{ratio:.3f}" for ratio in ratios)) for goal, ratios in part["by_round"].items()]
    keys = [key for key in RUN_KEYS if any(run.get(key) is not None for run in part["runs"])]
    return "\n\n".join([
        f"## {part['title']}",
        f"`{part['load']}`, `{part['request']['path']}`. {part['note']}".strip(),
        table(["median", *(columns[key] for key in known)], medians),
        *([table(["ratio of throughput", "by round"], by_round)] if by_round else []),
        table(keys, [[run.get(key, "") for key in keys] for run in part["runs"]]),
    ])  # fmt: skip


RUN_KEYS = (
    "round", "server", "counts", "disturbed", "per_second", "count", "failed", "p50_ms", "p99_ms", "mean_ms", "sent_late_p99_ms", "cpu_us",
    "server_core_busy", "server_core_others", "load_core_busy", "load_core_others", "stolen", "rss_before_mib", "rss_most_mib", "origin_requests", "purges_per_second", "purges_failed",
)  # fmt: skip


def idle(part):
    rows = [
        (name, kind, f"{one['kib']:.2f}", f"{one['before_mib']:.1f}", f"{one['after_mib']:.1f}")
        for name, kinds in part["found"].items()
        for kind, one in kinds.items()
    ]
    return "\n\n".join([
        "## Memory for an idle connection",
        f"{part['connections']:,} connections are opened one after another, each with one request, and stay open. RSS of all processes before, and "
        f"{part['settle_seconds']} s after the last one, divided by their number; 1,000 others came before them. nginx allocates the records of "
        "all its connections (`worker_connections`) when it starts: these are not counted. Memory of the kernel is not counted.",
        table(["", "", "KiB a connection", "RSS MiB before", "RSS MiB after"], rows),
    ])  # fmt: skip


def reload(part):
    under = part["under_load"]
    return "\n\n".join([
        "## Reload",
        "One of 10,000 HTTPRoutes in one file is changed: from the file's rename to the first answer that shows it, and "
        "ghost's part of that as the gateway logs it (ghost.json written, read, compiled, swapped).",
        table(
            ["reload", "new answer ms", "ghost ms"],
            [(number + 1, one["new_answer_ms"], one["ghost_ms"]) for number, one in enumerate(part["single"])]
            + [("median", part["median_new_answer_ms"], part["median_ghost_ms"])],
        ),
        f"Under load: {under['reloads']} reloads in {under['seconds']} s, each moves {under['moved_endpoints_per_reload']} "
        f"endpoints, the one that is asked among them; {under['requests_per_second']} requests a second meanwhile, half "
        f"pass, half hits; slowest {under['slowest_ms']} ms; median of ghost's part {under['median_ghost_ms']} ms.",
        table(["seen by the client", "count"], sorted(under["seen"].items())),
        f"ghost's part of each reload, ms: {', '.join(map(str, under['ghost_ms']))}",
    ])  # fmt: skip


def memory(part):
    def row(name, found, over=""):
        inside = ", ".join(f"{process} {pss}" for process, pss in found["processes"].items())
        return name, found["pss"], over, found["pss_anon"], found["rss"], inside

    over = part["over_bare"]
    return "\n\n".join([
        "## Memory",
        "MiB of all processes together. PSS counts a shared page once. Each server has answered every one of the 10,000 "
        "routes once (cached, 1 KiB) and then hits until varnishd's log of 80 MiB was written around; same storage.",
        table(
            ["", "PSS", "over bare", "PSS, anonymous", "RSS", "PSS by process"],
            [
                row("bare varnishd", part["bare"]),
                row("chaperone, varnishd with ghost", part["chaperone"], over["chaperone"]),
                row("serve, varnishd with ghost", part["serve"], over["serve"]),
            ],
        ),
        "Over reloads of `serve`, between two configurations that differ in a route and in 1,000 endpoints:",
        table(
            ["reloads", "PSS", "PSS, anonymous", "RSS", "PSS by process", "backends", "VCLs", "threads"],
            [
                (
                    point["reloads"], point["pss"], point["pss_anon"], point["rss"],
                    ", ".join(f"{process} {pss}" for process, pss in point["processes"].items()),
                    point.get("backends"), point.get("vcls"), point.get("threads"),
                )
                for point in part["curve"]
            ],
        ),
    ])  # fmt: skip


def router(part):
    return "\n\n".join([
        "## Router alone",
        f"`{part['command']}`",
        table(["", "low", "middle", "high"], [tuple(one.values()) for one in part["times"]]),
        "\n".join(f"    {line}" for line in part["said"]),
    ])  # fmt: skip


PARTS = {"idle": idle, "reload": reload, "memory": memory, "router": router}
