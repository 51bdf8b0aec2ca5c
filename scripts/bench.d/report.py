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
        f"Server on core {result['cores'][0]}, wrk on core {result['cores'][1]}, origin on core {result['cores'][2]}: "
        f"the same for every peer. It took {result['minutes']} minutes.",
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
        parts.append(PARTS[name](part) if "failed" not in part else f"## {name}\n\nIt failed: {part['failed']}")
    return "\n\n".join(parts) + "\n"


def throughput(title, explained):
    def write(part):
        medians = [
            (
                name,
                f"{found['requests_per_second']:.0f}",
                part["ratio_to_bare"][name],
                found["server_cpu_us_per_request"],
                found["p50_ms"],
                found["p99_ms"],
            )
            for name, found in part["medians"].items()
        ]
        keys = (
            "round", "server", "counts", "disturbed", "requests_per_second", "requests", "errors", "not_2xx", "p50_ms", "p99_ms",
            "server_cpu_us_per_request", "server_core_busy", "server_core_others", "load_core_busy",
            "load_core_others", "stolen", "origin_requests",
        )  # fmt: skip
        return "\n\n".join([
            f"## {title}",
            explained,
            table(["median", "requests/s", "to bare varnishd", "server CPU µs/request", "p50 ms", "p99 ms"], medians),
            f"Gateway to bare varnishd: {part['ratio_of_medians']:.3f} by medians, {part['median_ratio_by_round']:.3f} "
            f"by rounds ({', '.join(f'{pair:.3f}' for pair in part['ratio_by_round'])}), {part['ratio_of_cpu']:.3f} by "
            f"CPU time per request. {part['counted_although_disturbed']} of the runs that count were disturbed by other "
            f"processes of the machine (more than 5% of a core); {part['runs_that_asked_the_origin_wrongly']} runs asked the "
            "origin more or less often than they should.",
            "Every run. A disturbed run is repeated, twice at most, and the last one counts. `busy`, `others` and `stolen` are "
            "shares of the time; `others` are processes that are not part of the measurement.",
            table(keys, [[one[key] for key in keys] for one in part["runs"]]),
        ])  # fmt: skip

    return write


def policy(part):
    medians = [
        (name, f"{found['requests_per_second']:.0f}", found["server_cpu_us_per_request"], found["p50_ms"], found["p99_ms"])
        for name, found in part["medians"].items()
    ]
    ratios = [
        (name, found["of_medians"], ", ".join(f"{one:.3f}" for one in found["by_round"]), found["of_cpu"])
        for name, found in part["ratios"].items()
    ]
    keys = (
        "round", "server", "counts", "disturbed", "requests_per_second", "requests", "errors", "not_2xx",
        "server_cpu_us_per_request", "server_core_others", "load_core_others", "stolen", "origin_requests",
    )  # fmt: skip
    return "\n\n".join([
        "## Hits with a cache policy",
        "The same object, out of a gateway with 10,000 HTTPRoutes and a VarnishCachePolicy for all of them (forcedTTL, no user "
        "VCL): once with the default key, once with an excluded query parameter and two key headers, asked for with three "
        "parameters and both headers. Bare varnishd gets the same requests.",
        table(["median", "requests/s", "server CPU µs/request", "p50 ms", "p99 ms"], medians),
        table(["to bare varnishd", "of medians", "by round", "of CPU time per request"], ratios),
        table(keys, [[one[key] for key in keys] for one in part["runs"]]),
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


PARTS = {
    "hits": throughput(
        "Cached hits",
        "A 1 KiB object, `wrk -t1 -c32`, connections kept. The gateway has 10,000 HTTPRoutes and 10,000 endpoints; user "
        "VCL switches the cache on. Bare varnishd has default parameters and a VCL of three lines. Configurations of all "
        "peers: scripts/bench.d.",
    ),
    "pass": throughput(
        "Pass",
        "The same object from the origin at every request. The gateway has no user VCL; bare varnishd says "
        "`return (pass)`; nginx and HAProxy proxy with kept connections. Where `load_core_busy` is 1, wrk and the origin "
        "were the limit, not the server.",
    ),
    "policy": policy,
    "reload": reload,
    "memory": memory,
    "router": router,
}
