//! `status`: what runs, as tables or as JSON.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashboard::view::{Arrangement, Gateway, Group, Health, Listener, Row};
use serde_json::json;

use crate::cli::{Output, StatusArguments};
use crate::progress;
use crate::running::{Pod, Running, Status};
use crate::table::Table;

/// Rows beyond this many are only counted: a large gateway has thousands.
const SHOWN: usize = 200;

pub(crate) async fn run(arguments: StatusArguments) -> anyhow::Result<ExitCode> {
    let working = progress::spinner("asking what runs");
    let running = Running::find(&arguments.target, arguments.all_namespaces).await?;
    let (gateways, rows) = running.status().await?;
    working.finish_and_clear();
    let good = !gateways.is_empty() && gateways.iter().all(Status::is_good);
    let mut to = io::stdout().lock();
    match arguments.output {
        Output::Json => writeln!(to, "{}", json!({ "gateways": gateways, "routes": rows }))?,
        Output::Table if gateways.is_empty() => writeln!(to, "{}", running.nothing())?,
        Output::Table => print(&mut to, &gateways, &rows)?,
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(to: &mut impl Write, gateways: &[Status], rows: &[Row]) -> io::Result<()> {
    let mut table = Table::new(&[
        "GATEWAY",
        "STATE",
        "DATA PATH",
        "ENGINE",
        "LISTENERS",
        "ROUTES",
        "ENDPOINTS",
        "LAST RELOAD",
    ]);
    for status in gateways {
        let Gateway { name, listeners, counts, .. } = &status.gateway;
        table.row(vec![
            name.clone(),
            state(status),
            data_path(&status.gateway.arrangement),
            status.gateway.engine.clone().unwrap_or_else(|| "-".to_owned()),
            listeners.len().to_string(),
            counts.routes.to_string(),
            counts.endpoints.to_string(),
            last_reload(status),
        ]);
    }
    table.write(to, None)?;
    for status in gateways {
        let name = &status.gateway.name;
        // Pods say it themselves.
        let refused = status.gateway.refused.iter().filter(|_| status.pods.is_empty());
        for problem in refused.chain(&status.gateway.problems) {
            writeln!(to, "  {name}: {problem}")?;
        }
        for pod in &status.pods {
            for problem in pod.trouble.iter().chain(&pod.refused) {
                writeln!(to, "  {name}: pod {}: {problem}", pod.name)?;
            }
        }
    }

    let mut table = Table::new(&["POD", "GATEWAY", "STATE", "LAST RELOAD"]);
    let pods =
        gateways.iter().flat_map(|status| status.pods.iter().map(move |pod| (&status.gateway.name, pod)));
    for (gateway, pod) in pods.clone().take(SHOWN) {
        table.row(vec![
            pod.name.clone(),
            gateway.clone(),
            pod_state(pod).to_owned(),
            since(pod).unwrap_or_default(),
        ]);
    }
    below(to, &table)?;
    more(to, pods.count())?;

    let mut table = Table::new(&["LISTENER", "GATEWAY", "PROTOCOL", "PORT", "HOSTNAME", "OPEN AT", "ROUTES"]);
    for status in gateways {
        for listener in &status.gateway.listeners {
            table.row(vec![
                listener.name.clone(),
                status.gateway.name.clone(),
                listener.protocol.clone(),
                listener.port.to_string(),
                listener.hostname.clone(),
                open_at(status, listener),
                listener.routes.to_string(),
            ]);
        }
    }
    below(to, &table)?;

    let mut table = Table::new(&["ROUTE", "GATEWAY", "HOST", "MATCH", "WAY", "BACKENDS"]);
    for row in rows.iter().take(SHOWN) {
        let hosts = match row.hosts.as_slice() {
            [one] => one.clone(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => "*".to_owned(),
        };
        let route = format!("{} {}, rule {}", row.kind, row.route, row.rule);
        let way = row.way.clone().unwrap_or_else(|| "-".to_owned());
        table.row(vec![route, row.gateway.clone(), hosts, row.conditions.clone(), way, backends(row)]);
    }
    below(to, &table)?;
    more(to, rows.len())?;

    let mut table =
        Table::new(&["STREAM ROUTE", "GATEWAY", "CONNECTIONS", "OPEN", "BYTES IN", "BYTES OUT", "LOST"]);
    for status in gateways {
        for stream in &status.gateway.streams {
            let route = if stream.route.is_empty() { "(none)" } else { &stream.route };
            table.row(vec![
                format!("{} {route}", stream.kind),
                status.gateway.name.clone(),
                stream.connections.to_string(),
                stream.open.to_string(),
                stream.bytes_in.to_string(),
                stream.bytes_out.to_string(),
                stream.lost.to_string(),
            ]);
        }
    }
    below(to, &table)?;

    let mut table = Table::new(&["CERTIFICATE", "SECRET", "GATEWAY", "DAYS LEFT"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for status in gateways {
        for certificate in &status.gateway.certificates {
            let left = certificate.not_after - i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            let left = if left < 0 { "expired".to_owned() } else { (left / 86_400).to_string() };
            let names = certificate.names.join(", ");
            table.row(vec![names, certificate.secret.clone(), status.gateway.name.clone(), left]);
        }
    }
    below(to, &table)
}

/// `Front (dataPath: Auto)`
fn data_path(Arrangement { name, why }: &Arrangement) -> String {
    if name.is_empty() { "-".to_owned() } else { format!("{name} ({why})") }
}

fn more(to: &mut impl Write, all: usize) -> io::Result<()> {
    match all.saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(to, "and {more} more (--output json has all)"),
    }
}

fn open_at(status: &Status, listener: &Listener) -> String {
    let serving = status.gateway.serving && !status.closed.contains(&listener.name);
    match (listener.address, status.addresses.first()) {
        (Some(address), _) => address.to_string(),
        (None, _) if status.pods.is_empty() || !serving => "not open".to_owned(),
        (None, Some(name)) => format!("{name}:{}", listener.port),
        (None, None) => "its pods".to_owned(),
    }
}

fn pod_state(pod: &Pod) -> &'static str {
    match (pod.ready, pod.current, &pod.refused) {
        (false, ..) => "not ready",
        (true, _, Some(_)) => "serving, the newest is refused",
        (true, true, None) => "serving",
        (true, false, None) => "serving an older configuration",
    }
}

fn below(to: &mut impl Write, table: &Table) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    writeln!(to)?;
    table.write(to, None)
}

fn state(status: &Status) -> String {
    let Gateway { serving, draining, refused, listeners, .. } = &status.gateway;
    let all_open = !status.pods.is_empty() || listeners.iter().all(|listener| listener.address.is_some());
    let word = match (serving, draining, refused) {
        (_, true, _) => "draining",
        (false, ..) => "not serving",
        (true, _, Some(_)) => "serving, the newest is refused",
        (true, _, None) if !all_open => "serving, not all listeners",
        (true, _, None) => "serving",
    };
    match status.pods.as_slice() {
        [] => word.to_owned(),
        pods => {
            let current = pods.iter().filter(|pod| pod.current).count();
            format!("{word} ({current} of {} pods)", pods.len())
        }
    }
}

fn last_reload(status: &Status) -> String {
    if let Some(pod) = status.pods.iter().max_by_key(|pod| &pod.since)
        && let Some(since) = since(pod)
    {
        return since;
    }
    let Some(reload) = &status.gateway.last_reload else { return "never".to_owned() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago = now.saturating_sub(Duration::from_millis(reload.at));
    let took = reload.milliseconds.map(|ms| format!(", {ms:.0} ms")).unwrap_or_default();
    format!("{} ago{took}", short(ago))
}

/// `3m ago`; the API server's own word where it is none of the usual form.
fn since(pod: &Pod) -> Option<String> {
    let text = pod.since.as_ref()?;
    let Ok(then) = text.parse::<jiff::Timestamp>() else { return Some(text.clone()) };
    let ago = jiff::Timestamp::now().duration_since(then);
    Some(format!("{} ago", short(ago.try_into().unwrap_or_default())))
}

/// `5s`, `3m`, `2h`, `4d`
fn short(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

fn backends(row: &Row) -> String {
    let several = row.groups.len() > 1;
    let group = |group: &Group| {
        let name = if group.name.is_empty() { "not valid" } else { &group.name };
        let share = if several { format!(" {} %", group.share) } else { String::new() };
        let count = group.endpoints.len();
        let endpoints = if count == 1 { "endpoint" } else { "endpoints" };
        match group.endpoints.iter().filter(|one| one.health == Health::Failing).count() {
            0 => format!("{name}{share} ({count} {endpoints})"),
            failing => format!("{name}{share} ({count} {endpoints}, {failing} failing)"),
        }
    };
    match row.groups.as_slice() {
        [] => row.filters.first().cloned().unwrap_or_else(|| "none".to_owned()),
        groups => groups.iter().map(group).collect::<Vec<_>>().join(", "),
    }
}
