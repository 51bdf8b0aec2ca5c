//! A DNS server on loopback that says what a test wants: A and AAAA records with their TTLs, or an error, or nothing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Debug, Clone)]
#[allow(dead_code, reason = "not every test needs all of them")]
pub(crate) enum Say {
    Addresses(Vec<IpAddr>, u32),
    NameError,
    ServerFailure,
    Silence,
}

#[derive(Debug)]
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    zone: Arc<Mutex<HashMap<String, Say>>>,
    asked: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    pub(crate) fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let address = socket.local_addr().unwrap();
        let (zone, asked, ends) =
            <(Arc<Mutex<HashMap<String, Say>>>, Arc<Mutex<Vec<String>>>, Arc<AtomicBool>)>::default();
        let (of_zone, of_asked, until) = (Arc::clone(&zone), Arc::clone(&asked), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !until.load(Ordering::Relaxed) {
                let Ok((count, from)) = socket.recv_from(&mut buffer) else { continue };
                let query = &buffer[..count];
                let Some((name, kind, end)) = question(query) else { continue };
                of_asked.lock().unwrap().push(name.clone());
                let say = of_zone.lock().unwrap().get(&name).cloned().unwrap_or(Say::NameError);
                if let Some(answer) = answer(query, end, kind, &say) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { address, zone, asked, ends, thread: Some(thread) }
    }

    /// What it says of a name from now on; of all others, that they do not exist.
    pub(crate) fn say(&self, name: &str, say: Say) {
        self.zone.lock().unwrap().insert(name.to_owned(), say);
    }

    pub(crate) fn has(&self, name: &str, addresses: &[&str], ttl: u32) {
        self.say(name, Say::Addresses(addresses.iter().map(|one| one.parse().unwrap()).collect(), ttl));
    }

    /// How often it was asked for a name, by either kind of address.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|one| *one == name).count()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The name in lower case, the type, and where the question ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind, at + 4))
}

fn answer(query: &[u8], end: usize, kind: u16, say: &Say) -> Option<Vec<u8>> {
    let (code, addresses, ttl): (u8, Vec<&IpAddr>, u32) = match say {
        Say::Silence => return None,
        Say::ServerFailure => (2, Vec::new(), 0),
        Say::NameError => (3, Vec::new(), 0),
        Say::Addresses(all, ttl) => {
            let fits = |one: &&IpAddr| matches!((kind, one), (1, IpAddr::V4(_)) | (28, IpAddr::V6(_)));
            (0, all.iter().filter(fits).collect(), *ttl)
        }
    };
    let mut bytes = query[..2].to_vec();
    bytes.extend([0x81, 0x80 | code, 0, 1]);
    bytes.extend(u16::try_from(addresses.len()).unwrap().to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(&query[12..end]);
    for address in addresses {
        bytes.extend([0xc0, 12]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(ttl.to_be_bytes());
        let octets = match address {
            IpAddr::V4(one) => one.octets().to_vec(),
            IpAddr::V6(one) => one.octets().to_vec(),
        };
        bytes.extend(u16::try_from(octets.len()).unwrap().to_be_bytes());
        bytes.extend(octets);
    }
    Some(bytes)
}
