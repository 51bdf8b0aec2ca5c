//! The certificates that the front shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Listener;

use super::Certificate;

/// Each pair once, those that end first before the others.
pub(super) fn certificates(listeners: &[Listener], tls: &front::Config) -> Vec<Certificate> {
    let mut all: BTreeMap<String, Certificate> = BTreeMap::new();
    for port in &tls.listeners {
        for host in &port.hosts {
            let certificates = host.certificates();
            let secrets = secrets(listeners, &port.socket, host.hostname.as_deref());
            for (position, pair) in certificates.iter().enumerate() {
                // Pairs that are not there have left no gap: only where none is missing, the position tells the name.
                let secret =
                    secrets.filter(|all| all.len() == certificates.len()).and_then(|all| all.get(position));
                let known = all.entry(pair.fingerprint()).or_insert_with(|| certificate_view(pair));
                if let Some(secret) = secret.filter(|_| known.secret.is_empty()) {
                    known.secret.clone_from(secret);
                }
                if !known.sockets.contains(&port.socket) {
                    known.sockets.push(port.socket.clone());
                }
            }
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by(|one, other| (one.not_after, &one.names).cmp(&(other.not_after, &other.names)));
    all
}

fn certificate_view(pair: &Arc<certificate::Pair>) -> Certificate {
    Certificate {
        secret: String::new(),
        names: pair.names().to_vec(),
        not_before: pair.not_before(),
        not_after: pair.not_after(),
        fingerprint: pair.fingerprint(),
        sockets: Vec::new(),
    }
}

/// The Secrets that are named for this host of the socket.
fn secrets<'l>(listeners: &'l [Listener], socket: &str, hostname: Option<&str>) -> Option<&'l Vec<String>> {
    let of_socket = listeners.iter().filter(|listener| listener.socket == socket);
    of_socket.filter_map(|listener| Some((listener, listener.tls.as_ref()?))).find_map(|(listener, tls)| {
        if listener.hostname.as_deref() == hostname && !tls.certificates.is_empty() {
            return Some(&tls.certificates);
        }
        tls.hosts.get(hostname?)
    })
}
