//! Takes objects out of the cache, as the loopback socket is asked to.

use std::collections::HashMap;
use std::ffi::CStr;

use model::invalidation::{Invalidation, MOST_AT_ONCE, Method, Order, Outcome, Outcomes};

use crate::ffi::{self, Ctx, c_string};
use crate::index::{self, Fate};

/// 256 paths of 2048 bytes, and their clothes.
const LARGEST_ORDER: usize = 2 << 20;
/// All errors of one answer together: it has to fit into the fetch's workspace.
const ROOM_FOR_ERRORS: usize = 8 << 10;
const LONGEST_ERROR: usize = 200;
/// Regular expressions are joined into one ban until it is as long as this.
const LONGEST_BAN: usize = 8 << 10;

/// Reads the request's body, and does what it asks for. An error: nothing was done.
pub(crate) fn carry_out(ctx: *const Ctx) -> Result<Outcomes, String> {
    let order = read(ctx)?;
    let count: usize = order.invalidations.iter().map(|one| one.paths.len() + one.tags.len()).sum();
    if count > MOST_AT_ONCE {
        return Err(format!("{count} paths and tags are too many for one request: {MOST_AT_ONCE} at most"));
    }
    let mut bans = Bans::default();
    let mut all: Vec<Vec<Outcome>> =
        order.invalidations.iter().map(|one| of_one(ctx, one, &mut bans)).collect();
    // Of a ban that could not be made, all parts are told.
    for (places, error) in bans.commit() {
        for (invalidation, path) in places {
            all[invalidation][path] = failed(error.clone());
        }
    }
    Ok(Outcomes { outcomes: with_room(all) })
}

fn read(ctx: *const Ctx) -> Result<Order, String> {
    let mut n = 0;
    // SAFETY: ctx is the fetch's live context; the body is ours until it is given back.
    unsafe {
        let body = ffi::gs_request_body(ctx, LARGEST_ORDER, &mut n);
        if body.is_null() {
            return Err(format!("a body of JSON is needed, of {LARGEST_ORDER} bytes at most"));
        }
        let order = serde_json::from_slice(std::slice::from_raw_parts(body, n));
        ffi::gs_free(body.cast());
        order.map_err(|e| format!("the body cannot be read: {e}"))
    }
}

fn of_one(ctx: *const Ctx, one: &Invalidation, bans: &mut Bans) -> Vec<Outcome> {
    let at = bans.invalidations;
    bans.invalidations += 1;
    let host = one.hostname.as_ref().map(|host| host.to_ascii_lowercase());
    let fate = match one.method {
        Method::Ban => {
            let path = |(path, regex): (usize, &String)| match &host {
                Some(host) => bans.add(host, regex, (at, path)),
                None => failed("a ban needs a hostname"),
            };
            let tags = one.tags.iter().map(|_| failed("tags cannot be banned: purge them"));
            return one.paths.iter().enumerate().map(path).chain(tags).collect();
        }
        Method::Purge => Fate::Gone,
        Method::SoftPurge => Fate::Stale,
    };
    let path = |path: &String| match &host {
        Some(host) => found(index::end_url(host.as_bytes(), path.as_bytes(), fate)),
        None => failed("a path needs a hostname"),
    };
    let tag = |tag: &String| {
        // SAFETY: ctx is the fetch's live context, and its worker this thread's.
        found(unsafe {
            index::end_tag(ffi::gs_worker(ctx), tag.as_bytes(), host.as_deref().map(str::as_bytes), fate)
        })
    };
    one.paths.iter().map(path).chain(one.tags.iter().map(tag)).collect()
}

fn found(objects: u64) -> Outcome {
    Outcome { objects: Some(objects), error: None }
}

fn failed(why: impl Into<String>) -> Outcome {
    let why: String = why.into().chars().take(LONGEST_ERROR).collect();
    Outcome { objects: None, error: Some(why) }
}

/// Errors beyond what fits are told in two words.
fn with_room(mut all: Vec<Vec<Outcome>>) -> Vec<Vec<Outcome>> {
    let mut room = ROOM_FOR_ERRORS;
    for error in all.iter_mut().flatten().filter_map(|outcome| outcome.error.as_mut()) {
        if error.len() > room {
            *error = "see the other errors".to_owned();
        }
        room = room.saturating_sub(error.len());
    }
    all
}

/// An expression, and who asked for it: the position of the invalidation, and of the path in it.
type Asked = (String, Vec<(usize, usize)>);

/// Bans of one order, joined: each object is held against each ban, and one long expression costs less than many short ones.
#[derive(Default)]
struct Bans {
    invalidations: usize,
    by_host: HashMap<String, Vec<Asked>>,
}

impl Bans {
    /// Looked at now, made at the end.
    fn add(&mut self, host: &str, regex: &str, place: (usize, usize)) -> Outcome {
        if let Err(why) = ban(host, regex, false) {
            return failed(why);
        }
        let of_host = self.by_host.entry(host.to_owned()).or_default();
        match of_host.iter_mut().find(|(known, _)| known == regex) {
            Some((_, places)) => places.push(place),
            None => of_host.push((regex.to_owned(), vec![place])),
        }
        Outcome::default()
    }

    /// What could not be done, and for whom.
    fn commit(self) -> Vec<(Vec<(usize, usize)>, String)> {
        let mut failed = Vec::new();
        for (host, regexes) in self.by_host {
            let (joinable, alone): (Vec<_>, Vec<_>) =
                regexes.into_iter().partition(|(regex, _)| can_be_joined(regex));
            let mut batches: Vec<Asked> = alone;
            let mut open: Option<Asked> = None;
            for (regex, places) in joinable {
                match &mut open {
                    Some((joined, of)) if joined.len() + regex.len() < LONGEST_BAN => {
                        joined.push_str(&format!("|(?:{regex})"));
                        of.extend(places);
                    }
                    _ => batches.extend(open.replace((format!("(?:{regex})"), places))),
                }
            }
            batches.extend(open);
            for (regex, places) in batches {
                if let Err(why) = ban(&host, &regex, true) {
                    failed.push((places, why));
                }
            }
        }
        failed
    }
}

/// Whether it means the same beside others: references to groups count from the first, and options or verbs may reach
/// beyond it.
fn can_be_joined(regex: &str) -> bool {
    let bytes = regex.as_bytes();
    let refers = |pair: &[u8]| {
        pair[0] == b'\\' && (pair[1].is_ascii_digit() || matches!(pair[1], b'g' | b'k' | b'Q' | b'E' | b'K'))
    };
    !bytes.windows(2).any(|pair| refers(pair) || matches!(pair, b"(?" | b"(*")) && !bytes.contains(&b'#')
}

/// Makes a ban, or only looks whether it could be made.
fn ban(host: &str, regex: &str, commit: bool) -> Result<(), String> {
    if host.contains('\0') || regex.contains('\0') {
        return Err("a zero byte is part of no URL".to_owned());
    }
    let (host, regex) = (c_string(host), c_string(regex));
    let mut why = [0; 512];
    if commit {
        index::note_ban(host.as_bytes(), &regex);
    }
    // SAFETY: strings that end in a zero byte, and room for an answer, all alive during the call.
    unsafe {
        let error = ffi::gs_ban(host.as_ptr(), regex.as_ptr(), commit.into(), why.as_mut_ptr(), why.len());
        if error.is_null() {
            return Ok(());
        }
        Err(CStr::from_ptr(error).to_string_lossy().trim().to_owned())
    }
}
