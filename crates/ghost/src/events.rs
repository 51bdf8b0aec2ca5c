//! What the front should know at once, and does not learn by a request: reports as datagrams.
//!
//! Guarantees that a front that is not there is no failure, that a fetch waits not longer than [`PATIENCE`] to report a write, and that none
//! waits to report a hint: an origin may send many. What cannot be sent is lost; lost writes are counted.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use model::event::{Event, Write};
use model::names::{FRONT_PROOF_ENV, GROUP_INVALIDATION_HEADER, HINTS_HEADER};
use router::NormalHost;
use router::cache::groups;

use crate::ffi::Http;
use crate::guard::stopped;
use crate::message::Message;

const PATIENCE: Duration = Duration::from_millis(50);
/// Values of Link in one hint, and names in one write.
const MOST_LINKS: usize = 32;
const MOST_NAMED: usize = 16;

/// Beside ghost.json. All VCLs of one varnishd have the same.
static SOCKET: ArcSwapOption<PathBuf> = ArcSwapOption::const_empty();

/// Writes that other pods do not hear of.
pub(crate) static WRITES_LOST: AtomicU64 = AtomicU64::new(0);

pub(crate) fn go_to(socket: PathBuf) {
    SOCKET.store(Some(std::sync::Arc::new(socket)));
}

/// False where it was not sent.
fn report(event: &Event) -> bool {
    static AT_ONCE: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    static PATIENT: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    let from = match event {
        Event::Hints { .. } => AT_ONCE.get_or_init(|| {
            let from = UnixDatagram::unbound().ok()?;
            from.set_nonblocking(true).ok()?;
            Some(from)
        }),
        Event::Write(_) => PATIENT.get_or_init(|| {
            let from = UnixDatagram::unbound().ok()?;
            from.set_write_timeout(Some(PATIENCE)).ok()?;
            Some(from)
        }),
    };
    let (Some(from), Some(socket)) = (from, SOCKET.load_full()) else { return false };
    let Some(proof) = std::env::var_os(FRONT_PROOF_ENV) else { return false };
    let datagram = event.datagram(proof.as_encoded_bytes());
    datagram.is_some_and(|datagram| from.send_to(&datagram, &*socket).is_ok())
}

/// An origin has sent 103 before its answer to this request, as it was before all edits.
#[unsafe(no_mangle)]
unsafe extern "C" fn ghost_hinted(unedited: *mut Http, hint: *mut Http) {
    stopped((), || {
        // SAFETY: the fetch owns both.
        let (Some(request), Some(hint)) = (unsafe { Message::new(unedited) }, unsafe { Message::new(hint) })
        else {
            return;
        };
        let number =
            request.header(HINTS_HEADER).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let Some(request) = number else { return };
        let links =
            hint.headers("Link").take(MOST_LINKS).filter_map(|link| String::from_utf8(link.to_vec()).ok());
        let links: Vec<String> = links.collect();
        if !links.is_empty() {
            report(&Event::Hints { request, links });
        }
    });
}

/// A response to an unsafe method went through varnishd. `named`: URLs of the same host that it names.
pub(crate) fn wrote(owner: &str, host: &[u8], url: &[u8], named: &[Vec<u8>], beresp: Message<'_>) {
    let Some(host) = Write::text(NormalHost::new(host).as_bytes()) else { return };
    let groups = groups(beresp.headers(GROUP_INVALIDATION_HEADER)).take(MOST_NAMED);
    let write = Write {
        host,
        url: Write::text(url),
        owner: owner.to_owned(),
        named: named.iter().take(MOST_NAMED).filter_map(|url| Write::text(url)).collect(),
        groups: groups.filter_map(|group| Write::group(group.as_bytes())).collect(),
    };
    if !report(&Event::Write(write)) {
        WRITES_LOST.fetch_add(1, Ordering::Relaxed);
    }
}
