//! `top`: the busiest routes, live on a terminal, as plain text elsewhere.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use dashboard::view::{ByWay, Point, Second, StreamSecond, Top};

use crate::cli::{Output, TopArguments};
use crate::progress;
use crate::running::Running;
use crate::table::Table;

/// The cursor home, and all below it gone.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) async fn run(arguments: TopArguments) -> anyhow::Result<ExitCode> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let live = io::stdout().is_terminal() && arguments.output == Output::Table && !dumb;
    let count = arguments.count.unwrap_or(if live { u64::MAX } else { 1 });
    let working = progress::spinner("asking what runs");
    let mut running = Running::find(&arguments.target, arguments.all_namespaces).await?;
    let mut first = Some(working);
    let mut nothing = false;
    // One for all: a Ctrl-C that comes during a look counts, too.
    let mut ended = pin!(tokio::signal::ctrl_c());
    for look in 0..count {
        let pause = Duration::from_secs(if look > 0 { arguments.interval } else { 0 });
        let next = async {
            tokio::time::sleep(pause).await;
            running.top(arguments.interval, arguments.limit).await
        };
        let top = tokio::select! {
            top = next => top,
            _ = &mut ended => break,
        };
        let top = match top {
            Ok(top) => top,
            // `top` goes on: the failure may pass.
            Err(e) if live && first.is_none() => {
                let mut to = io::stdout().lock();
                writeln!(to, "{CLEAR}{e:#}\n(it is tried again)")?;
                continue;
            }
            Err(e) => return Err(e),
        };
        if let Some(working) = first.take() {
            working.finish_and_clear();
        }
        nothing = top.gateways.is_empty();
        let mut to = io::stdout().lock();
        match arguments.output {
            Output::Json => writeln!(to, "{}", serde_json::to_string(&top)?)?,
            Output::Table => {
                if live {
                    write!(to, "{CLEAR}")?;
                }
                if top.gateways.is_empty() {
                    writeln!(to, "{}", running.nothing())?;
                }
                print(&mut to, &top, arguments.limit, live.then(width))?;
            }
        }
        to.flush()?;
    }
    Ok(if nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Of the terminal, as far as it is known.
fn width() -> usize {
    usize::from(console::Term::stdout().size_checked().map_or(120, |(_, columns)| columns))
}

fn print(to: &mut impl Write, top: &Top, limit: usize, width: Option<usize>) -> io::Result<()> {
    if top.gateways.is_empty() {
        return Ok(());
    }
    let head = ["ROUTE", "REQUESTS/S", "WAY", "HITS", "MEAN", "P95", "ERRORS/S"];
    let head: Vec<&str> = head.into_iter().filter(|column| top.by_way || *column != "WAY").collect();
    let mut table = Table::new(&head);
    let cells = |name, point: &Point, in_front| {
        let way = top.by_way.then(|| way(point.ways, in_front));
        cells(name, point, way)
    };
    for Second { gateway, total, in_flight, in_front, .. } in &top.gateways {
        table.row(cells(format!("Gateway {gateway}, {in_flight} in flight"), total, *in_front));
    }
    let mut rules: Vec<_> =
        top.gateways.iter().flat_map(|second| second.rules.iter().map(move |rule| (second, rule))).collect();
    rules.sort_by(|(_, one), (_, other)| other.point.rate.total_cmp(&one.point.rate));
    let several = top.gateways.len() > 1;
    for (second, rule) in rules.into_iter().take(limit) {
        let of = if several { format!(" ({})", second.gateway) } else { String::new() };
        let name = format!("{} {}, rule {}{of}", rule.kind, rule.route, rule.rule);
        table.row(cells(name, &rule.point, second.in_front));
    }
    table.write(to, width)?;
    let streams = streams(top, limit);
    if !streams.is_empty() {
        writeln!(to)?;
        streams.write(to, width)?;
    }
    for Second { gateway, .. } in top.gateways.iter().filter(|second| second.uncounted) {
        writeln!(
            to,
            "Gateway {gateway}: requests are not counted, as its GatewayClassParameters say metrics.perRoute: false."
        )?;
    }
    top.notes.iter().try_for_each(|note| writeln!(to, "{note}"))
}

/// TCPRoutes and UDPRoutes, the busiest first.
fn streams(top: &Top, limit: usize) -> Table {
    let mut table =
        Table::new(&["STREAM ROUTE", "CONNECTIONS/S", "OPEN", "BYTES IN/S", "BYTES OUT/S", "LOST/S"]);
    let mut all: Vec<_> =
        top.gateways.iter().flat_map(|second| second.streams.iter().map(move |one| (second, one))).collect();
    let bytes = |one: &StreamSecond| one.bytes_in + one.bytes_out;
    all.sort_by(|(_, one), (_, other)| bytes(other).total_cmp(&bytes(one)));
    let several = top.gateways.len() > 1;
    for (second, one) in all.into_iter().take(limit) {
        let of = if several { format!(" ({})", second.gateway) } else { String::new() };
        let route = if one.route.is_empty() { "(none)" } else { &one.route };
        table.row(vec![
            format!("{} {route}{of}", one.kind),
            format!("{:.1}", one.connections),
            one.open.to_string(),
            format!("{:.0}", one.bytes_in),
            format!("{:.0}", one.bytes_out),
            format!("{:.1}", one.lost),
        ]);
    }
    table
}

/// `direct`, or `cache 80 %, direct 20 %`. In the Varnish arrangement all requests go through varnishd.
fn way(ways: ByWay, in_front: bool) -> String {
    let cache = if in_front { "cache" } else { "varnishd" };
    let mut all = [(cache, ways.cache), ("direct", ways.direct), ("own", ways.own), ("hot", ways.hot)];
    all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let total: f64 = all.iter().map(|(_, rate)| rate).sum();
    let taken: Vec<_> = all.into_iter().filter(|(_, rate)| *rate > 0.0).collect();
    match taken.as_slice() {
        [] => "-".to_owned(),
        [(name, _)] => (*name).to_owned(),
        several => {
            let share = |(name, rate): &(&str, f64)| format!("{name} {:.0} %", 100.0 * rate / total);
            several.iter().map(share).collect::<Vec<_>>().join(", ")
        }
    }
}

fn cells(name: String, point: &Point, way: Option<String>) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut all = vec![name, format!("{:.1}", point.rate)];
    all.extend(way);
    all.extend([
        or_dash(point.hits.map(|share| format!("{:.1} %", 100.0 * share))),
        or_dash(point.mean.map(|ms| format!("{ms:.1} ms"))),
        or_dash(point.p95.map(|ms| format!("{ms:.1} ms"))),
        format!("{:.1}", point.errors),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_named_with_shares_where_there_are_several() {
        let ways = |cache, direct, own| ByWay { cache, direct, own, hot: 0.0 };
        assert_eq!(way(ways(0.0, 3.0, 0.0), true), "direct");
        assert_eq!(way(ways(1.0, 3.0, 0.0), true), "direct 75 %, cache 25 %");
        assert_eq!(way(ways(3.0, 0.0, 1.0), false), "varnishd 75 %, own 25 %");
        assert_eq!(way(ByWay::default(), true), "-");
    }
}
