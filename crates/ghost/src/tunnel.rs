//! WebSockets: a tunnel to the origin opens with its 101, and not before. Bytes are moved by c/tunnel.c; what an answer means is
//! decided here.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use model::names::{CACHE_HOST_HEADER, CACHE_URL_HEADER, GHOST_PREFIX, TAG_HEADERS, UPGRADE_TOTAL_ENV};

use crate::ffi::{self, Http};
use crate::framing::Framing;
use crate::guard::stopped;
use crate::message::Message;
use crate::target::Target;

/// Tunnels that are open, or whose origin has not answered yet.
pub(crate) static OPEN: AtomicU64 = AtomicU64::new(0);
/// Those that there was no place for.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// A day: clients of WebSockets connect again by themselves.
const TOTAL_SECONDS: f64 = 86_400.0;

/// What becomes of an answer: as in c/tunnel.c.
const BAD: c_int = 0;
const SWITCH: c_int = 1;
const ANSWER: c_int = 2;

/// No other protocol gets a tunnel: `Upgrade: h2c` would take requests past the gateway's rules.
pub(crate) fn asks_for_websocket(message: Message<'_>) -> bool {
    message.method() == b"GET"
        && message.proto() == b"HTTP/1.1"
        && !has_body(message)
        && has_token(message, "Upgrade", b"websocket")
        && has_token(message, "Connection", b"upgrade")
}

fn has_body(message: Message<'_>) -> bool {
    message.header("Transfer-Encoding").is_some()
        || message.headers("Content-Length").any(|length| length.trim_ascii() != b"0")
}

fn has_token(message: Message<'_>, name: &str, token: &[u8]) -> bool {
    tokens(message, name).any(|one| one.eq_ignore_ascii_case(token))
}

/// The elements of a header that is a list.
pub(crate) fn tokens<'a>(message: Message<'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    message.headers(name).flat_map(|value| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii)
}

/// Headers that are about one connection, and those that `Connection` names.
fn remove_hop_by_hop(message: Message<'_>) {
    // A copy, since headers move when one is removed.
    let named: Vec<Vec<u8>> = tokens(message, "Connection").map(<[u8]>::to_vec).collect();
    let named = named.iter().filter_map(|name| std::str::from_utf8(name).ok());
    let framing = |name: &&str| {
        !["transfer-encoding", "content-length"].iter().any(|kept| kept.eq_ignore_ascii_case(name))
    };
    for name in named.filter(framing).filter(|name| !name.is_empty()) {
        message.remove_header(name);
    }
    for name in ["Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"] {
        message.remove_header(name);
    }
}

/// Makes the origin's answer what the client is to see, and says what follows it.
fn judge(target: &Target, mut answer: Message<'_>) -> (c_int, Option<Framing>) {
    let status = answer.status();
    let switches = status == 101 && has_token(answer, "Upgrade", b"websocket");
    let framing = if status < 200 {
        None
    } else {
        Framing::of_answer(status, answer.headers("Transfer-Encoding"), answer.headers("Content-Length"))
    };
    if !switches && framing.is_none() {
        return (BAD, None);
    }
    remove_hop_by_hop(answer);
    answer.remove_headers_with(GHOST_PREFIX);
    for name in TAG_HEADERS.into_iter().chain([CACHE_HOST_HEADER, CACHE_URL_HEADER]) {
        answer.remove_header(name);
    }
    target.rule().edit_response(&mut answer);
    if switches {
        answer.remove_header("Transfer-Encoding");
        answer.remove_header("Content-Length");
        answer.set_header("Upgrade", b"websocket");
        answer.set_header("Connection", b"Upgrade");
        return (SWITCH, None);
    }
    answer.set_header("Connection", b"close");
    (ANSWER, framing)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_is_websocket(request: *mut Http) -> c_int {
    // SAFETY: the request is this thread's.
    stopped(0, || c_int::from(unsafe { Message::new(request) }.is_some_and(asks_for_websocket)))
}

/// A place for one more, of `most`. The caller gives it back by `ghost_tunnel_ends`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_tunnel_begins(most: u64) -> c_int {
    stopped(0, || {
        let begun = OPEN.fetch_add(1, Ordering::Relaxed) < most;
        if !begun {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
        c_int::from(begun)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_tunnel_ends() {
    stopped((), || {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    });
}

/// How many seconds one may last.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_tunnel_total() -> f64 {
    stopped(TOTAL_SECONDS, || {
        let given = std::env::var(UPGRADE_TOTAL_ENV).ok().and_then(|text| text.parse().ok());
        given.filter(|seconds: &f64| *seconds > 0.0).unwrap_or(TOTAL_SECONDS)
    })
}

/// The origin has answered. The caller gives `framing` back by `ghost_framing_free`, where it is set.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_tunnel_answer(
    target: *const c_void,
    beresp: *mut Http,
    framing: *mut *mut c_void,
) -> c_int {
    stopped(BAD, || {
        // SAFETY: the shim passes a director's private part, its own response and a place.
        unsafe {
            let Some(answer) = Message::new(beresp) else { return BAD };
            let (verdict, found) = judge(&*target.cast::<Target>(), answer);
            if ffi::gs_overflowed(beresp) == 1 {
                return BAD;
            }
            if let Some(found) = found {
                *framing = Box::into_raw(Box::new(found)).cast();
            }
            verdict
        }
    })
}

/// How many of the bytes belong to the answer; negative where they are none.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_framing_take(framing: *mut c_void, p: *const u8, n: usize) -> isize {
    stopped(-1, || {
        // SAFETY: made by ghost_tunnel_answer; pointer and length belong together.
        let (framing, bytes) = unsafe { (&mut *framing.cast::<Framing>(), std::slice::from_raw_parts(p, n)) };
        framing.take(bytes).and_then(|taken| isize::try_from(taken).ok()).unwrap_or(-1)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_framing_done(framing: *const c_void) -> c_int {
    // SAFETY: made by ghost_tunnel_answer.
    stopped(1, || c_int::from(unsafe { (*framing.cast::<Framing>()).is_done() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_framing_free(framing: *mut c_void) {
    stopped((), || {
        if !framing.is_null() {
            // SAFETY: made by ghost_tunnel_answer, freed once.
            drop(unsafe { Box::from_raw(framing.cast::<Framing>()) });
        }
    });
}
