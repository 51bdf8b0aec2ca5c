//! The numbers of a pod, out of its `/metrics`.

use std::collections::BTreeMap;

use dashboard::view::Stream;
use model::RouteKind;
use model::stats::{BOUNDS_MICROS, CACHE_RESULTS, CODES, Counts, RouteStats, Stats};

/// As far as `top` needs them.
pub(super) fn parse(text: &str) -> Stats {
    let mut stats = Stats::default();
    let mut rules: BTreeMap<(RouteKind, String, u32), Counts> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("varnish_gateway_")) {
        let Some((name, labels, value)) = sample(line) else { continue };
        let label = |name: &str| labels.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        match name {
            "varnish_gateway_requests_in_flight" => stats.in_flight = value as u64,
            "varnish_gateway_unrouted_requests_total" => {
                // It is there, with zeros at least, wherever routes are counted.
                stats.per_route = true;
                if let Some(place) = place(&CODES, label("code")) {
                    stats.unrouted.codes[place] = value as u64;
                }
            }
            _ => {
                let (Some(namespace), Some(of), Some(Ok(rule))) =
                    (label("namespace"), label("name"), label("rule").map(str::parse))
                else {
                    continue;
                };
                let kind = label("kind").and_then(RouteKind::named).unwrap_or_default();
                let counts = rules.entry((kind, format!("{namespace}/{of}"), rule)).or_default();
                match name {
                    "varnish_gateway_route_requests_total" => {
                        if let Some(place) = place(&CODES, label("code")) {
                            counts.codes[place] = value as u64;
                        }
                    }
                    "varnish_gateway_route_cache_total" => {
                        if let Some(place) = place(&CACHE_RESULTS, label("result")) {
                            counts.cache[place] = value as u64;
                        }
                    }
                    "varnish_gateway_route_request_seconds_sum" => {
                        counts.seconds.sum_micros = (value * 1e6) as u64;
                    }
                    // Cumulated; taken apart below.
                    "varnish_gateway_route_request_seconds_bucket" => {
                        let bound =
                            label("le").and_then(|le| le.parse::<f64>().ok()).unwrap_or(f64::INFINITY);
                        let at = BOUNDS_MICROS
                            .iter()
                            .position(|micros| (*micros as f64 / 1e6 - bound).abs() < 1e-9);
                        counts.seconds.buckets[at.unwrap_or(BOUNDS_MICROS.len())] = value as u64;
                    }
                    _ => {}
                }
            }
        }
    }
    for ((kind, route, rule), mut counts) in rules {
        let mut before = 0;
        for bucket in &mut counts.seconds.buckets {
            let cumulated = *bucket;
            *bucket = cumulated.saturating_sub(before);
            before = cumulated.max(before);
        }
        stats.routes.push(RouteStats { kind, route, rule, counts });
    }
    stats
}

/// What was counted of TCPRoutes and UDPRoutes.
pub(super) fn streams(text: &str) -> Vec<Stream> {
    let mut all: BTreeMap<(String, String), Stream> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("varnish_gateway_stream_")) {
        let Some((name, labels, value)) = sample(line) else { continue };
        let label = |name: &str| labels.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let (Some(kind), Some(namespace), Some(of)) = (label("kind"), label("namespace"), label("name"))
        else {
            continue;
        };
        // Listeners without a route have no name.
        let route = if of.is_empty() { String::new() } else { format!("{namespace}/{of}") };
        let stream = all.entry((kind.to_owned(), route)).or_default();
        let value = value as u64;
        match (name, label("direction")) {
            ("varnish_gateway_stream_connections_total", _) => stream.connections = value,
            ("varnish_gateway_stream_connections", _) => stream.open = value,
            ("varnish_gateway_stream_bytes_total", Some("in")) => stream.bytes_in = value,
            ("varnish_gateway_stream_bytes_total", Some("out")) => stream.bytes_out = value,
            // By reason.
            ("varnish_gateway_stream_lost_total", _) => stream.lost += value,
            _ => {}
        }
    }
    all.into_iter().map(|((kind, route), stream)| Stream { kind, route, ..stream }).collect()
}

fn place(names: &[&str], name: Option<&str>) -> Option<usize> {
    names.iter().position(|known| Some(*known) == name)
}

type Labels = Vec<(String, String)>;

/// `name{label="value"} 1`
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let Some(mut rest) = rest.strip_prefix('{') else {
        return Some((name, Vec::new(), rest.trim().split(' ').next()?.parse().ok()?));
    };
    let mut labels = Vec::new();
    while !rest.starts_with('}') {
        let (label, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((label.trim_start_matches(',').to_owned(), value));
        rest = &quoted[end..];
    }
    Some((name, labels, rest[1..].trim().split(' ').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_pod_are_understood() {
        let of = "kind=\"TCPRoute\",namespace=\"a\",name=\"b\"";
        let text = format!(
            "\
varnish_gateway_stream_connections_total{{{of}}} 7
varnish_gateway_stream_connections{{{of}}} 2
varnish_gateway_stream_bytes_total{{{of},direction=\"in\"}} 10
varnish_gateway_stream_bytes_total{{{of},direction=\"out\"}} 20
varnish_gateway_stream_lost_total{{{of},reason=\"one\"}} 1
varnish_gateway_stream_lost_total{{{of},reason=\"other\"}} 2
varnish_gateway_stream_datagrams_total{{kind=\"UDPRoute\",namespace=\"\",name=\"\",direction=\"in\"}} 5
"
        );
        let all = streams(&text);
        let [tcp, udp] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((tcp.kind.as_str(), tcp.route.as_str()), ("TCPRoute", "a/b"));
        assert_eq!((tcp.connections, tcp.open, tcp.bytes_in, tcp.bytes_out, tcp.lost), (7, 2, 10, 20, 3));
        assert_eq!((udp.kind.as_str(), udp.route.as_str()), ("UDPRoute", ""));
    }

    #[test]
    fn what_a_pod_tells_is_understood() {
        let text = "\
# HELP varnish_gateway_requests_in_flight x
varnish_gateway_requests_in_flight 2
varnish_gateway_route_requests_total{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\",code=\"2xx\"} 7
varnish_gateway_route_cache_total{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\",result=\"hit\"} 5
varnish_gateway_route_request_seconds_bucket{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\",le=\"0.001\"} 3
varnish_gateway_route_request_seconds_bucket{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\",le=\"0.005\"} 7
varnish_gateway_route_request_seconds_bucket{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\",le=\"+Inf\"} 7
varnish_gateway_route_request_seconds_sum{kind=\"HTTPRoute\",namespace=\"a\",name=\"b\",rule=\"1\"} 0.5
varnish_gateway_odd{a=\"\\\"}\"} 1
varnish_gateway_broken{a=
";
        let stats = parse(text);
        assert_eq!(stats.in_flight, 2);
        let [rule] = stats.routes.as_slice() else { panic!("{stats:?}") };
        assert_eq!((rule.route.as_str(), rule.rule, rule.counts.requests()), ("a/b", 1, 7));
        assert_eq!((rule.counts.cache[0], rule.counts.seconds.sum_micros), (5, 500_000));
        assert_eq!(rule.counts.seconds.buckets[..3], [3, 4, 0]);
        assert_eq!(sample(r#"x{a="\"}",b="2"} 1 99"#).unwrap().1[0].1, "\"}");
    }
}
