//! X-Forwarded-For, -Proto, -Port and -Host: the gateway's own word, or a trusted proxy's.

use std::net::IpAddr;

use model::names::socket_parts;

use crate::ffi::{self, Ctx};
use crate::message::{Message, c_bytes};
use crate::table::{SocketLines, Table};

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const PORT: &str = "X-Forwarded-Port";
const HOST: &str = "X-Forwarded-Host";

/// Varnish has already appended the client's address to X-Forwarded-For. `kept`: a trusted proxy's others may be there.
///
/// # Safety
/// `ctx` must be the live context whose request `message` is, and the table must outlive the request.
pub(crate) unsafe fn set(
    ctx: *const Ctx,
    message: Message<'_>,
    table: &Table,
    socket: &[u8],
    trusted: bool,
    kept: bool,
) {
    // SAFETY: the session outlives the task.
    let client = unsafe { c_bytes(ffi::gs_client_ip(ctx)) };
    if !trusted && message.header(FOR) != Some(client) {
        message.set_header(FOR, client);
    }
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

/// Is the client a trusted proxy?
///
/// # Safety
/// `ctx` must be the live context of a client's task.
pub(crate) unsafe fn is_trusted(ctx: *const Ctx, table: &Table) -> bool {
    let proxies = table.router().trusted_proxies();
    !proxies.is_empty()
        // SAFETY: the session outlives the task.
        && std::str::from_utf8(unsafe { c_bytes(ffi::gs_client_ip(ctx)) })
            .ok()
            .and_then(|text| text.parse::<IpAddr>().ok())
            .is_some_and(|address| proxies.contains(address))
}
