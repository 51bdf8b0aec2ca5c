//! The questions, and who answers them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use model::RouteKind;
use model::names::socket_parts;

use crate::answer::{self, Answer};
use crate::assets;
use crate::board::{Board, Watched, lock};
use crate::explain::{self, Asked, Explained, explain};
use crate::names;
use crate::streams;
use crate::view::{Health, Measured, MeasuredGateway, Routes, Row, Second, Top, arrangement, rows};

/// The most rows of one answer.
const MOST_ROWS: usize = 1000;
const USUAL_ROWS: usize = 100;
/// Rows and events that are part of the page: as many rows as app.js shows at once (`PAGE`).
const FIRST_ROWS: usize = 50;
const FIRST_EVENTS: usize = 100;
/// The longest host, path and header of a question.
const LONGEST: usize = 8192;

/// The query of a question, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn new(text: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Self(pairs.take(200).map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0
            .iter()
            .filter(move |(n, value)| n == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{name} must be a number")),
        }
    }
}

fn bad(why: &str) -> Answer {
    answer::error(StatusCode::BAD_REQUEST, why)
}

pub(crate) fn state(board: &Board) -> Answer {
    answer::json(&board.overview())
}

pub(crate) fn routes(board: &Board, query: &Query) -> Answer {
    match (query.number("limit", USUAL_ROWS), query.number("offset", 0)) {
        (Ok(limit), Ok(offset)) => {
            let wanted = query.get("q").unwrap_or_default().to_ascii_lowercase();
            answer::json(&find_routes(&asked_for(board, query), &wanted, limit.min(MOST_ROWS), offset))
        }
        (Err(why), _) | (_, Err(why)) => bad(&why),
    }
}

fn find_routes(gateways: &[Arc<Watched>], wanted: &str, limit: usize, offset: usize) -> Routes {
    let mut found = Routes::default();
    for watched in gateways {
        let config = watched.current();
        let backends = lock(&watched.backends);
        let avoided = watched.state.borrow().avoided_endpoints();
        let health = |address| {
            if avoided.contains(&address) { Health::Failing } else { backends.health(address) }
        };
        let in_front = watched.is_in_front();
        for row in rows(&watched.name, &config, in_front, &health).filter(|row| fits(row, wanted)) {
            if found.total >= offset && found.rows.len() < limit {
                found.rows.push(row);
            }
            found.total += 1;
        }
        drop(backends);
        let traffic = lock(&watched.traffic);
        for row in found.rows.iter_mut().filter(|row| row.gateway == watched.name) {
            let kind = RouteKind::named(&row.kind).unwrap_or_default();
            row.traffic = traffic.columns(&(kind, row.route.clone(), row.rule));
        }
    }
    found
}

/// The page, with what it shows first: a browser draws it without asking for anything else.
pub(crate) fn page(board: &Arc<Board>) -> Answer {
    let gateways = board.gateways();
    let journal = board.journal.last(FIRST_EVENTS);
    let first = serde_json::json!({
        "state": board.overview(),
        "routes": find_routes(&gateways, "", FIRST_ROWS, 0),
        "traffic": measured(&gateways),
        "journal": journal.iter().map(AsRef::as_ref).collect::<Vec<_>>(),
    });
    answer::text("text/html; charset=utf-8", assets::page(&first))
}

/// Every word of the question somewhere in the row.
fn fits(row: &Row, wanted: &str) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let services = row.groups.iter().map(|group| group.name.as_str());
    let parts = [row.gateway.as_str(), &row.kind, &row.route, &row.conditions];
    let hosts = row.hosts.iter().map(String::as_str);
    let text =
        parts.into_iter().chain(hosts).chain(services).collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    wanted.split_whitespace().all(|word| text.contains(word))
}

pub(crate) fn explained(board: &Board, query: &Query) -> Answer {
    let (host, path) = (query.get("host").unwrap_or_default(), query.get("path").unwrap_or("/"));
    if !path.starts_with('/') {
        return bad("path must begin with `/`");
    }
    let mut headers = Vec::new();
    for header in query.all("header") {
        let Some((name, value)) = header.split_once(':') else { return bad("a header is `Name: value`") };
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let port = match query.get("port").map(str::parse::<u16>) {
        None => None,
        Some(Ok(port)) => Some(port),
        Some(Err(_)) => return bad("port must be a number"),
    };
    if host.is_empty() && port.is_none() {
        return bad("host is missing: whose request is it? Listeners of TCP and UDP are asked by port");
    }
    let asked = Asked {
        host: host.to_owned(),
        path: path.to_owned(),
        method: query.get("method").unwrap_or("GET").to_owned(),
        headers,
    };
    let length = asked.host.len() + asked.path.len() + asked.method.len();
    if length > LONGEST {
        return bad("this request is too long");
    }
    let known = board.names();
    if let Some(gateway) = query.get("gateway").filter(|gateway| !known.contains(*gateway)) {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let why = format!("no such Gateway: {gateway} (there: {known})");
        return answer::error(StatusCode::NOT_FOUND, &why);
    }
    let faults = board.faults();
    let mut all: Vec<Explained> = Vec::new();
    for watched in asked_for(board, query) {
        let (config, router) = match watched.router() {
            Ok(read) => read,
            Err(why) => return answer::error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        };
        // Not held meanwhile: reporters must not wait for us.
        let state = watched.state.borrow().clone();
        let names = names::of_front(&state.configuration.tls);
        let arrangement = arrangement(&state.configuration.tls);
        if let Some(port) = port {
            all.extend(streams::of_front(&watched.name, &state.configuration.tls, &faults, port));
        }
        for socket in sockets(&config, &state).values() {
            let here = socket_parts(socket).map(|(_, port)| port);
            if port.is_none() || port == here {
                let mut one = explain(&router, &names, &faults, (&watched.name, socket), arrangement, &asked);
                one.last = state.last_uncached(&asked.host, &asked.path).map(|last| explain::last(&last));
                all.push(one);
            }
        }
    }
    answer::json(&all)
}

/// Sockets by port; those of plain HTTP that are open where the file names none.
fn sockets(config: &model::ghost::Config, state: &chaperone::State) -> BTreeMap<u16, String> {
    let named = config.listeners.iter().map(|listener| listener.socket.clone());
    let open = state.sockets.iter().map(|(socket, _)| socket.clone());
    let mut all: Vec<String> = if config.listeners.is_empty() { open.collect() } else { named.collect() };
    // Of TLSRoutes alone.
    let passed = state.front_sockets.iter().map(|(socket, _)| socket.clone());
    all.extend(passed.filter(|socket| socket_parts(socket).is_some_and(|(protocol, _)| protocol == "tls")));
    all.into_iter().filter_map(|socket| Some((socket_parts(&socket)?.1, socket))).collect()
}

pub(crate) fn journal(board: &Arc<Board>, query: &Query) -> Answer {
    match query.number("limit", 100) {
        Ok(limit) => answer::json(&board.journal.last(limit).iter().map(AsRef::as_ref).collect::<Vec<_>>()),
        Err(why) => bad(&why),
    }
}

pub(crate) fn traffic(board: &Board, query: &Query) -> Answer {
    answer::json(&measured(&asked_for(board, query)))
}

fn measured(gateways: &[Arc<Watched>]) -> Measured {
    let mut all = Measured { kept: crate::traffic::KEPT, gateways: Vec::new() };
    for watched in gateways {
        let traffic = lock(&watched.traffic);
        all.gateways.push(MeasuredGateway {
            gateway: watched.name.clone(),
            in_flight: traffic.in_flight,
            per_route: !traffic.is_uncounted(),
            total: traffic.total(),
            in_front: watched.is_in_front(),
            picture: traffic.picture(),
        });
    }
    all
}

pub(crate) fn top(board: &Board, query: &Query) -> Answer {
    let (seconds, limit) = match (query.number("seconds", 5), query.number("limit", USUAL_ROWS)) {
        (Ok(seconds), Ok(limit)) => (seconds.clamp(1, crate::traffic::KEPT), limit.min(MOST_ROWS)),
        (Err(why), _) | (_, Err(why)) => return bad(&why),
    };
    let mut top = Top { by_way: true, ..Top::default() };
    for watched in asked_for(board, query) {
        let second = lock(&watched.traffic).second(&watched.name, seconds, limit);
        let streams = lock(&watched.streams).seconds(seconds as u64, limit);
        top.gateways.push(Second { in_front: watched.is_in_front(), streams, ..second });
    }
    answer::json(&top)
}

fn asked_for(board: &Board, query: &Query) -> Vec<Arc<Watched>> {
    let mut all = board.gateways();
    all.retain(|watched| query.get("gateway").is_none_or(|gateway| gateway == watched.name));
    all
}
