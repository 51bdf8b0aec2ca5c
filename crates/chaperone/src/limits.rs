//! Limits for clients, and the proxies that may name a client's address, in the form that the front reads.

use std::time::Duration;

use model::notice::{Notice, Severity};
use model::routing::Routing;

const LONGEST: f64 = 86_400.0 * 365.0;

/// The limits of routing.json, and the front's defaults for the others.
pub(crate) fn limits(routing: &Routing) -> front::Limits {
    let default = front::Limits::default();
    let of_tls = routing.tls_limits.clone().unwrap_or_default();
    let of_clients = routing.client_limits.clone().unwrap_or_default();
    let http = default.http;
    front::Limits {
        handshake_timeout: seconds(of_tls.handshake_seconds, default.handshake_timeout),
        concurrent_handshakes: count(of_tls.handshakes, default.concurrent_handshakes),
        connections: count(of_tls.connections, default.connections),
        connections_per_address: of_clients.connections_per_address,
        hello_bytes: count(of_tls.client_hello_bytes, default.hello_bytes),
        idle_timeout: seconds(of_tls.idle_seconds, default.idle_timeout),
        udp: front::UdpLimits {
            sessions: count(of_clients.udp_sessions, default.udp.sessions),
            idle_timeout: seconds(of_clients.udp_idle_seconds, default.udp.idle_timeout),
            established_timeout: seconds(of_clients.udp_established_seconds, default.udp.established_timeout),
        },
        http: front::HttpLimits {
            head_timeout: seconds(of_clients.header_seconds, http.head_timeout),
            idle_timeout: seconds(of_clients.idle_seconds, http.idle_timeout),
            stall_timeout: seconds(of_clients.stall_seconds, http.stall_timeout),
            head_bytes: count(of_clients.header_bytes, http.head_bytes),
            headers: count(of_clients.headers, http.headers),
            url_bytes: count(of_clients.url_bytes, http.url_bytes),
            body_bytes: of_clients.body_bytes.or(http.body_bytes),
            streams: of_clients.streams.unwrap_or(http.streams),
            resets: of_clients.resets.unwrap_or(http.resets),
        },
    }
}

fn count(value: Option<u32>, default: usize) -> usize {
    value.map_or(default, |value| value as usize)
}

fn seconds(value: Option<f64>, default: Duration) -> Duration {
    value.map_or(default, |value| Duration::from_secs_f64(value.clamp(0.001, LONGEST)))
}

/// Networks that cannot be parsed are not trusted: connections that begin with a PROXY header are closed.
pub(crate) fn proxy_protocol(routing: &Routing, notices: &mut Vec<Notice>) -> Option<front::ProxyProtocol> {
    let given = routing.proxy_protocol.as_ref()?;
    let sources = front::TrustedSources::parse(&given.trusted_sources).unwrap_or_else(|e| {
        let message = format!("{e}; no PROXY header is trusted");
        let object = "proxy_protocol of routing.json".to_owned();
        notices.push(Notice { object, severity: Severity::Warning, message });
        front::TrustedSources::default()
    });
    Some(front::ProxyProtocol { sources, required: !given.optional })
}

#[cfg(test)]
mod tests {
    use model::{ClientLimits, ProxyProtocol, TlsLimits};

    use super::*;

    #[test]
    fn what_is_not_given_is_the_fronts_default() {
        assert_eq!(limits(&Routing::default()), front::Limits::default());
    }

    #[test]
    fn each_limit_reaches_the_front() {
        let routing = Routing {
            tls_limits: Some(TlsLimits { connections: Some(7), ..TlsLimits::default() }),
            client_limits: Some(ClientLimits {
                connections_per_address: Some(1),
                header_bytes: Some(2),
                headers: Some(3),
                url_bytes: Some(4),
                body_bytes: Some(5),
                header_seconds: Some(6.5),
                idle_seconds: Some(7.0),
                stall_seconds: Some(8.0),
                streams: Some(9),
                resets: Some(10),
                udp_sessions: Some(11),
                udp_idle_seconds: Some(12.5),
                udp_established_seconds: Some(13.0),
            }),
            ..Routing::default()
        };
        let limits = limits(&routing);
        assert_eq!((limits.connections, limits.connections_per_address), (7, Some(1)));
        let expected = front::HttpLimits {
            head_timeout: Duration::from_millis(6500),
            idle_timeout: Duration::from_secs(7),
            stall_timeout: Duration::from_secs(8),
            head_bytes: 2,
            headers: 3,
            url_bytes: 4,
            body_bytes: Some(5),
            streams: 9,
            resets: 10,
        };
        assert_eq!(limits.http, expected);
        let udp = front::UdpLimits {
            sessions: 11,
            idle_timeout: Duration::from_millis(12_500),
            established_timeout: Duration::from_secs(13),
        };
        assert_eq!(limits.udp, udp);
    }

    #[test]
    fn networks_that_cannot_be_read_are_trusted_by_no_one() {
        let of = |network: &str| {
            let proxy_protocol = ProxyProtocol { trusted_sources: vec![network.into()], optional: false };
            let routing = Routing { proxy_protocol: Some(proxy_protocol), ..Routing::default() };
            let mut notices = Vec::new();
            (super::proxy_protocol(&routing, &mut notices), notices.len())
        };
        let (good, none) = of("10.0.0.0/8");
        assert!(good.is_some_and(|good| good.required && !good.sources.is_empty()) && none == 0);
        let (bad, one) = of("balancer.example.com");
        assert!(bad.is_some_and(|bad| bad.required && bad.sources.is_empty()) && one == 1);
    }
}
