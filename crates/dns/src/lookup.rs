//! One question to DNS.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{Resolver, TokioResolver};

use tokio::time::timeout;

use crate::Settings;

/// For one server to answer, and how often it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 1;

/// For all servers and both families.
const LONGEST: Duration = Duration::from_secs(4);

/// What DNS says of a name.
#[derive(Debug)]
pub(crate) enum Answer {
    Addresses {
        addresses: Vec<IpAddr>,
        ttl: Duration,
    },
    /// The name does not exist, or has no address.
    NoAddress,
    Failed(String),
}

/// Asks the servers of the settings. Another one is made after failures: the servers may have changed.
pub(crate) fn resolver(settings: &Settings) -> Result<TokioResolver, NetError> {
    let mut builder = if settings.servers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let server = |at: &std::net::SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(at.ip());
            server.connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
            server.connections.iter_mut().for_each(|connection| connection.port = at.port());
            server
        };
        let name_servers = settings.servers.iter().map(server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), name_servers);
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options: &mut ResolverOpts = builder.options_mut();
    options.timeout = PATIENCE;
    options.attempts = ATTEMPTS;
    // Pods with IPv6 addresses alone reach few names without AAAA records, and most others have no way to those of AAAA records.
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
    // A name is looked up when its answer expires.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build()
}

/// The addresses of a name.
pub(crate) async fn ask(resolver: &TokioResolver, host: &str) -> Answer {
    let Ok(mut name) = Name::from_ascii(host) else {
        return Answer::Failed("it is not a name of DNS".to_owned());
    };
    // Absolute: no search domain is tried.
    name.set_fqdn(true);
    let Ok(found) = timeout(LONGEST, resolver.lookup_ip(name)).await else {
        return Answer::Failed(format!("DNS has not answered within {} seconds", LONGEST.as_secs()));
    };
    match found {
        Ok(found) => {
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            let addresses: Vec<IpAddr> = found.iter().collect();
            if addresses.is_empty() { Answer::NoAddress } else { Answer::Addresses { addresses, ttl } }
        }
        Err(error) if error.is_no_records_found() => Answer::NoAddress,
        Err(error) => Answer::Failed(error.to_string()),
    }
}
