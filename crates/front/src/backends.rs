//! Endpoints that get bytes without a varnishd in between: those of TLSRoutes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use router::random;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::backend::{Ready, reach};
use crate::trouble::Trouble;
use crate::{BackendFailure, BackendTls, UpstreamFailure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How many endpoints of a group are tried.
const TRIES: usize = 3;

/// Groups by weight, then one of the group's endpoints: the number of replicas shifts no split.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backends {
    pub groups: Vec<BackendGroup>,
}

/// The endpoints of one backendRef. Without any, its share of connections is closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackendGroup {
    /// `namespace/name` of the Service, for people; empty if the backendRef is invalid.
    pub name: String,
    pub weight: u32,
    pub endpoints: Vec<SocketAddr>,
    /// Decrypted bytes are encrypted again, for a backend that is verified by this profile. Not for bytes that pass through.
    pub tls: Option<Arc<BackendTls>>,
    /// A PROXY v2 header, which names the client, comes before its bytes. For TCPRoutes alone.
    pub proxy_protocol: bool,
}

/// Groups whose profiles are ready for use.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    groups: Arc<Backends>,
    /// Of each group. An error: its share of connections is closed.
    tls: Vec<Option<Result<Arc<Ready>, String>>>,
}

/// A backend that takes the bytes.
pub(crate) enum Reached<'a> {
    Plain(TcpStream),
    /// Of this Service, at this endpoint. Only its response shows whether the backend works.
    Tls(Box<TlsStream<TcpStream>>, &'a str, SocketAddr),
}

impl Targets {
    pub(crate) fn new(backends: &Arc<Backends>) -> Self {
        let ready = |group: &BackendGroup| {
            group.tls.as_ref().map(|profile| Ready::new(&raw_tcp(profile)).map(Arc::new))
        };
        Self { tls: backends.groups.iter().map(ready).collect(), groups: Arc::clone(backends) }
    }

    /// For bytes that pass through: the endpoint terminates TLS itself.
    pub(crate) fn plain(backends: &Arc<Backends>) -> Self {
        Self { tls: Vec::new(), groups: Arc::clone(backends) }
    }

    pub(crate) async fn connect(&self, trouble: &Trouble) -> Result<Reached<'_>, UpstreamFailure> {
        let random = random::next();
        let tls = self.groups.position(random).and_then(|at| self.tls.get(at)?.as_ref());
        let ready = match tls {
            None => return self.connect_to(random, trouble).await.map(Reached::Plain),
            Some(Ok(ready)) => ready,
            Some(Err(why)) => {
                trouble.ill(self.groups.name(random), None, why.clone());
                return Err(UpstreamFailure::Unverified);
            }
        };
        let name = self.groups.name(random);
        let mut last = UpstreamFailure::NoEndpoint;
        for endpoint in self.groups.choose(random) {
            match reach(endpoint, ready).await {
                Ok(stream) => return Ok(Reached::Tls(Box::new(stream), name, endpoint)),
                Err((reason, why)) => {
                    let unreachable = reason == BackendFailure::Unreachable;
                    last =
                        if unreachable { UpstreamFailure::Unreachable } else { UpstreamFailure::Unverified };
                    trouble.ill(name, Some(endpoint), why);
                }
            }
        }
        self.told_of_none(random, last, trouble)
    }

    pub(crate) async fn connect_plain(&self, trouble: &Trouble) -> Result<TcpStream, UpstreamFailure> {
        self.connect_to(random::next(), trouble).await
    }

    async fn connect_to(&self, random: u64, trouble: &Trouble) -> Result<TcpStream, UpstreamFailure> {
        let name = self.groups.name(random);
        let mut last = UpstreamFailure::NoEndpoint;
        for endpoint in self.groups.choose(random) {
            let why = match timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    trouble.well(name, endpoint);
                    return Ok(stream);
                }
                Ok(Err(e)) => e.to_string(),
                Err(_) => format!("no connection in {CONNECT_TIMEOUT:?}"),
            };
            last = UpstreamFailure::Unreachable;
            trouble.ill(name, Some(endpoint), why);
        }
        self.told_of_none(random, last, trouble)
    }

    fn told_of_none<T>(
        &self,
        random: u64,
        last: UpstreamFailure,
        trouble: &Trouble,
    ) -> Result<T, UpstreamFailure> {
        if last == UpstreamFailure::NoEndpoint {
            trouble.ill(self.groups.name(random), None, "it has no endpoint that is ready".to_owned());
        }
        Err(last)
    }
}

/// The protocol of the bytes is unknown here: none is offered by ALPN.
fn raw_tcp(profile: &BackendTls) -> BackendTls {
    BackendTls { alpn: false, ..profile.clone() }
}

impl Backends {
    /// The endpoints to try, in turn.
    fn choose(&self, random: u64) -> impl Iterator<Item = SocketAddr> + '_ {
        let endpoints = self.group(random).map_or(&[][..], |group| &group.endpoints);
        // The upper bits have chosen the group.
        let first = random::below(endpoints.len() as u64, random << 32) as usize;
        (0..endpoints.len().min(TRIES))
            .filter_map(move |i| endpoints.get((first + i) % endpoints.len()).copied())
    }

    /// For people.
    fn name(&self, random: u64) -> &str {
        self.group(random).map_or("", |group| group.name.as_str())
    }

    fn group(&self, random: u64) -> Option<&BackendGroup> {
        self.groups.get(self.position(random)?)
    }

    fn position(&self, random: u64) -> Option<usize> {
        random::by_weight(self.groups.iter().map(|group| group.weight), random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weight: u32, ports: &[u16]) -> BackendGroup {
        BackendGroup {
            name: String::new(),
            weight,
            endpoints: ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect(),
            ..BackendGroup::default()
        }
    }

    #[test]
    fn weights_split_groups_whatever_their_size() {
        let backends = Backends { groups: vec![group(9, &[1]), group(0, &[2]), group(1, &[3, 4, 5, 6])] };
        let mut counts = [0; 7];
        for _ in 0..10_000 {
            let first = backends.choose(random::next()).next().unwrap();
            counts[usize::from(first.port())] += 1;
        }
        assert!((8_700..9_300).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
        assert!(counts[3..].iter().all(|count| (150..350).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_endpoint_that_fails_is_followed_by_the_others_of_its_group() {
        let backends = Backends { groups: vec![group(1, &[1, 2])] };
        let mut ports: Vec<u16> = backends.choose(random::next()).map(|endpoint| endpoint.port()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 2]);
    }

    #[test]
    fn without_weight_or_endpoint_there_is_nothing() {
        for groups in [vec![], vec![group(0, &[1])], vec![group(1, &[])]] {
            assert_eq!(Backends { groups }.choose(random::next()).next(), None);
        }
    }
}
