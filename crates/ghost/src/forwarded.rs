//! X-Forwarded-For, -Proto, -Port and -Host: the gateway's own word, or a trusted proxy's.

use std::net::IpAddr;

use model::names::socket_parts;

use crate::ffi::{self, Ctx};
use crate::message::{Message, c_bytes};
use crate::table::{SocketLines, Table};

const FOR: &str = "X-Forwarded-For";
pub(crate) const PROTO: &str = "X-Forwarded-Proto";
pub(crate) const PORT: &str = "X-Forwarded-Port";
pub(crate) const HOST: &str = "X-Forwarded-Host";

/// Varnish has already appended the client's address to X-Forwarded-For. Without `any`, none of the others is there.
/// True where the client is a trusted proxy.
///
/// # Safety
/// `ctx` must be the live context whose request `message` is, and the table must outlive the request.
pub(crate) unsafe fn set(
    ctx: *const Ctx,
    message: Message<'_>,
    table: &Table,
    socket: &[u8],
    any: bool,
) -> bool {
    // SAFETY: the session outlives the task.
    let client = unsafe { c_bytes(ffi::gs_client_ip(ctx)) };
    let trusted = is_trusted(table, client);
    if !trusted && message.header(FOR) != Some(client) {
        message.set_header(FOR, client);
    }
    let lines = table.socket_lines(socket);
    let claim = |name| !any || claim(message, name, trusted);
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
    trusted
}

/// Is the header ours to set? What an untrusted client sent is gone then.
fn claim(message: Message<'_>, name: &str, trusted: bool) -> bool {
    match message.header(name) {
        None => true,
        Some(_) if trusted => false,
        Some(_) => {
            message.remove_header(name);
            true
        }
    }
}

fn is_trusted(table: &Table, client: &[u8]) -> bool {
    let proxies = table.router().trusted_proxies();
    !proxies.is_empty()
        && std::str::from_utf8(client)
            .ok()
            .and_then(|text| text.parse::<IpAddr>().ok())
            .is_some_and(|address| proxies.contains(address))
}
