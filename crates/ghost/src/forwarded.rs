//! X-Forwarded-For, -Proto, -Port and -Host: the gateway's own word, or a trusted proxy's.

use std::net::IpAddr;

use model::names::socket_parts;

use crate::client;
use crate::ffi::{self, Ctx};
use crate::message::{Message, c_bytes};
use crate::table::SocketLines;
use crate::task::Task;

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const PORT: &str = "X-Forwarded-Port";
const HOST: &str = "X-Forwarded-Host";

/// Varnish has already appended the session's address to X-Forwarded-For. `kept`: a trusted proxy's others may be there.
///
/// # Safety
/// `ctx` must be the live context whose request `message` is, and the table must outlive the request.
pub(crate) unsafe fn set(
    ctx: *const Ctx,
    message: Message<'_>,
    task: &Task,
    socket: &[u8],
    trusted: bool,
    kept: bool,
) {
    // SAFETY: the caller's promise; the session outlives the task.
    let (client, of_session) = unsafe { (client::address(ctx, task), c_bytes(ffi::gs_client_ip(ctx))) };
    if trusted && task.client.is_some() {
        message.set_header(FOR, &appended(message.header(FOR).unwrap_or_default(), of_session, client));
    } else if !trusted && message.header(FOR) != Some(client) {
        message.set_header(FOR, client);
    }
    let table = task.table();
    let lines = table.socket_lines(socket);
    let claim = |name| !kept || message.header(name).is_none();
    if claim(PROTO) {
        match lines {
            // SAFETY: the caller's promise.
            Some(SocketLines { forwarded_proto, .. }) => unsafe { message.add_static(forwarded_proto) },
            None => message.set_header(PROTO, if socket.starts_with(b"https") { b"https" } else { b"http" }),
        }
    }
    if claim(PORT) {
        match lines.map(|l| l.forwarded_port.as_ref()) {
            // SAFETY: the caller's promise.
            Some(Some(line)) => unsafe { message.add_static(line) },
            Some(None) => {}
            None => {
                let port = std::str::from_utf8(socket).ok().and_then(socket_parts).map(|(_, port)| port);
                if let Some(port) = port {
                    message.set_header(PORT, port.to_string().as_bytes());
                }
            }
        }
    }
    if claim(HOST)
        && let Some(host) = message.header("Host")
    {
        message.add_header(HOST, host);
    }
}

/// A trusted proxy's chain with the client's address in the place of the session's, which Varnish has appended, except after
/// std.rollback(req). Sessions of the front have no address of a client.
fn appended(chain: &[u8], of_session: &[u8], client: &[u8]) -> Vec<u8> {
    let sent = match chain.strip_suffix(of_session) {
        Some(b"") => b"",
        Some(rest) => rest.strip_suffix(b", ").unwrap_or(chain),
        None => chain,
    };
    if sent.is_empty() { client.to_vec() } else { [sent, b", ", client].concat() }
}

/// Is the client a trusted proxy?
///
/// # Safety
/// `ctx` must be the live context of a client's task.
pub(crate) unsafe fn is_trusted(ctx: *const Ctx, task: &Task) -> bool {
    let proxies = task.table().router().trusted_proxies();
    let of_session = || {
        // SAFETY: the session outlives the task.
        let text = unsafe { c_bytes(ffi::gs_client_ip(ctx)) };
        std::str::from_utf8(text).ok()?.parse::<IpAddr>().ok()
    };
    !proxies.is_empty()
        && task
            .client
            .map(|client| client.address)
            .or_else(of_session)
            .is_some_and(|address| proxies.contains(address))
}
