//! Reads routing.json of this version and of the one before.
//!
//! Version 2 had one entry for each backend of a match: neighbours that differed in nothing but their backend were one rule's groups.
//! Such a file is rewritten as JSON, then read like any other. That takes more time and memory than a file of the present version; it
//! happens while a release replaces another, and for files that people wrote.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Backend, Route, Routing};
use crate::version::{VERSION, Version, WrongVersion, check_version};

/// Why a file is no routing.json that this build reads.
#[derive(Debug)]
pub enum ReadError {
    Version(WrongVersion),
    Json(serde_json::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(wrong) => wrong.fmt(f),
            Self::Json(wrong) => wrong.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<serde_json::Error> for ReadError {
    fn from(wrong: serde_json::Error) -> Self {
        Self::Json(wrong)
    }
}

impl Routing {
    /// A file of any version that this build reads. Unknown fields are ignored.
    pub fn read(text: &[u8]) -> Result<Self, ReadError> {
        match rewritten(text)? {
            Some(json) => Ok(Self::deserialize(json)?),
            None => Ok(serde_json::from_slice(text)?),
        }
    }

    /// The same for JSON that is part of another file.
    pub fn from_json(json: Value) -> Result<Self, ReadError> {
        let Version { version } = Version::deserialize(&json)?;
        check_version("routing.json", version).map_err(ReadError::Version)?;
        Ok(Self::deserialize(if version == VERSION { json } else { rewrite(json) })?)
    }
}

/// A file of an earlier version in the form of the present one. `None`: the file has that form already.
pub fn rewritten(text: &[u8]) -> Result<Option<Value>, ReadError> {
    // The version first: what another version means by the rest is not ours to guess.
    let Version { version } = match Version::at_start(text) {
        Some(version) => version,
        None => serde_json::from_slice(text)?,
    };
    check_version("routing.json", version).map_err(ReadError::Version)?;
    if version == VERSION {
        return Ok(None);
    }
    Ok(Some(rewrite(serde_json::from_slice(text)?)))
}

/// Fails where a reader takes a file of an earlier version for one of the present: without their backends, its routes would answer
/// 500.
pub(super) fn present_version<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let found = u32::deserialize(from)?;
    match check_version("routing.json", found) {
        Err(wrong) => Err(D::Error::custom(wrong)),
        Ok(()) if found != VERSION => {
            Err(D::Error::custom(format!("routing.json has version {found}, and was not rewritten")))
        }
        Ok(()) => Ok(found),
    }
}

/// What version 2 calls the parts of an entry that are its backend's, and what they are called now.
const OF_BACKEND: [(&str, &str); 10] = [
    ("service", "service"),
    ("namespace", "namespace"),
    ("port", "port"),
    ("port_name", "port_name"),
    ("backend_tls", "backend_tls"),
    ("backend_filters", "filters"),
    ("backend_mirrors", "mirrors"),
    ("protocol", "protocol"),
    ("weight", "weight"),
    ("balancing", "balancing"),
];

fn rewrite(mut file: Value) -> Value {
    let Some(fields) = file.as_object_mut() else { return file };
    fields.insert("version".to_owned(), VERSION.into());
    if let Some(default) = fields.get_mut("default") {
        rewrite_route(default);
    }
    let hosts = fields.get_mut("vhosts").and_then(Value::as_object_mut);
    for host in hosts.into_iter().flat_map(Map::values_mut) {
        if let Some(default) = host.get_mut("default_route") {
            rewrite_route(default);
        }
        if let Some(routes) = host.get_mut("routes").and_then(Value::as_array_mut) {
            *routes = join(std::mem::take(routes));
        }
    }
    file
}

/// A route that has one backend.
fn rewrite_route(route: &mut Value) {
    let Some(fields) = route.as_object_mut() else { return };
    let backend = take_backend(fields);
    put_backends(fields, vec![backend]);
}

/// Takes the backend out of an entry. It may be empty.
fn take_backend(entry: &mut Map<String, Value>) -> Value {
    // No process ever read it.
    entry.remove("priority");
    let fields = OF_BACKEND.iter().filter_map(|(old, new)| Some(((*new).to_owned(), entry.remove(*old)?)));
    Value::Object(fields.collect())
}

fn put_backends(route: &mut Map<String, Value>, backends: Vec<Value>) {
    // An entry without any of these fields redirects, or has no backend.
    let is_none = matches!(&backends[..], [one] if one.as_object().is_some_and(Map::is_empty));
    if !is_none {
        route.insert("backends".to_owned(), backends.into());
    }
}

/// A route that is being collected: its JSON without backends, that parsed as a `Route`, and its backends.
type Open = (Map<String, Value>, Option<Route>, Vec<Value>);

/// Entries that differ in nothing but their backend become one route.
fn join(entries: Vec<Value>) -> Vec<Value> {
    let mut routes: Vec<Value> = Vec::with_capacity(entries.len());
    let mut open: Option<Open> = None;
    for entry in entries {
        let Value::Object(mut fields) = entry else {
            routes.extend(open.take().map(closed));
            // It is an error, which the reader reports.
            routes.push(entry);
            continue;
        };
        let backend = take_backend(&mut fields);
        // As types, because a field may be absent or have its default.
        let meant = Route::deserialize(&Value::Object(fields.clone())).ok();
        match &mut open {
            Some((_, of_open, backends)) if meant.is_some() && *of_open == meant => backends.push(backend),
            _ => {
                routes.extend(open.take().map(closed));
                open = Some((fields, meant, vec![backend]));
            }
        }
    }
    routes.extend(open.map(closed));
    routes
}

fn closed((mut route, _, backends): Open) -> Value {
    put_backends(&mut route, backends);
    Value::Object(route)
}

/// The memory of an entry of version 2, which had one backend.
const ENTRY: usize = 464;
/// What an allocator adds to the memory of a list.
const OF_LIST: usize = 16;
// Thousands of routes with one backend each are the usual case: they take no more than they did.
const _: () = assert!(size_of::<Route>() + size_of::<Backend>() + OF_LIST <= ENTRY);
