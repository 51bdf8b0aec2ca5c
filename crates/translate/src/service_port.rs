//! The port of a Service that a backend names.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use model::Protocol;
use model::names::PROXY_V2_APP_PROTOCOL;

use crate::external_name;
use crate::listener::Fault;
use crate::snapshot::{Key, Snapshot};

/// Application protocols that are HTTP/2: in the clear, or over TLS where a BackendTLSPolicy is for the port.
const HTTP2_APP_PROTOCOLS: [&str; 6] = ["kubernetes.io/h2c", "h2c", "http2", "h2", "grpc", "grpcs"];
/// Those that need TLS: a BackendTLSPolicy must say which CA to trust.
const TLS_APP_PROTOCOLS: [&str; 5] = ["kubernetes.io/wss", "wss", "https", "h2", "grpcs"];
/// Those that say that there is no TLS.
const PLAIN_APP_PROTOCOLS: [&str; 6] = ["http", "kubernetes.io/ws", "ws", "kubernetes.io/h2c", "h2c", "tcp"];
/// Those that are not HTTP. Unknown names count as HTTP/1.1.
const OTHER_APP_PROTOCOLS: [&str; 2] = ["udp", "sctp"];

/// How it is named.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    Number(i32),
    Name(&'a str),
}

/// The port of `service`, or why requests cannot go there. The caller checks whether it may be referred to.
pub(crate) fn find<'a>(
    service: &Key,
    wanted: Option<Wanted<'_>>,
    snapshot: &'a Snapshot,
) -> Result<Cow<'a, ServicePort>, Fault> {
    find_for("TCP", service, wanted, snapshot)
}

/// The same for a transport, `TCP` or `UDP`.
pub(crate) fn find_for<'a>(
    transport: &str,
    service: &Key,
    wanted: Option<Wanted<'_>>,
    snapshot: &'a Snapshot,
) -> Result<Cow<'a, ServicePort>, Fault> {
    let Some(object) = snapshot.services.get(service) else {
        return Err(Fault {
            reason: "BackendNotFound",
            message: format!("Service {service} does not exist: create it, or correct the name"),
        });
    };
    let has_ports =
        object.spec.as_ref().is_some_and(|spec| spec.ports.as_ref().is_some_and(|all| !all.is_empty()));
    if external_name::host(object).is_some() && !has_ports {
        // Its ports are those of the host. Whether a Gateway uses it at all is judged later.
        return of_host(transport, service, wanted).map(Cow::Owned);
    }
    port(transport, service, object, wanted).map(Cow::Borrowed)
}

/// A port of a Service that has none: any number will do.
fn of_host(transport: &str, service: &Key, wanted: Option<Wanted<'_>>) -> Result<ServicePort, Fault> {
    let number = match wanted {
        Some(Wanted::Number(number)) if (1..=i32::from(u16::MAX)).contains(&number) => number,
        _ => {
            let message = format!(
                "Service {service} of type ExternalName has no ports: name a port by its number, or add it to the Service"
            );
            return Err(Fault { reason: "BackendNotFound", message });
        }
    };
    Ok(ServicePort { port: number, protocol: Some(transport.to_owned()), ..ServicePort::default() })
}

/// Does the server of a TCP port require a PROXY v2 header at the beginning of each connection?
pub(crate) fn wants_proxy_header(service: &Key, port: u16, snapshot: &Snapshot) -> bool {
    let port = find(service, Some(Wanted::Number(port.into())), snapshot);
    port.is_ok_and(|port| port.app_protocol.as_deref() == Some(PROXY_V2_APP_PROTOCOL))
}

/// By number, of the wanted transport where the number stands for two; or by name.
fn port<'a>(
    transport: &str,
    service: &Key,
    object: &'a Service,
    wanted: Option<Wanted<'_>>,
) -> Result<&'a ServicePort, Fault> {
    let ports = object.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let listed = || {
        let listed: Vec<String> = ports
            .iter()
            .map(|port| match (wanted, port.name.as_deref().filter(|name| !name.is_empty())) {
                (Some(Wanted::Name(_)), Some(name)) => format!("{} ({name})", port.port),
                _ => port.port.to_string(),
            })
            .collect();
        if listed.is_empty() { "no ports".to_owned() } else { format!("ports {}", listed.join(", ")) }
    };
    let not_found = |message: String| Fault { reason: "BackendNotFound", message };
    let Some(wanted) = wanted else {
        let listed = listed();
        return Err(not_found(format!("port is missing: Service {service} has {listed}, name one of them")));
    };
    let fits = |port: &&ServicePort| {
        u16::try_from(port.port).is_ok()
            && match wanted {
                Wanted::Number(number) => port.port == number,
                Wanted::Name(name) => port.name.as_deref() == Some(name),
            }
    };
    let shown = match wanted {
        Wanted::Number(number) => number.to_string(),
        Wanted::Name(name) => name.to_owned(),
    };
    let of_number = || ports.iter().filter(fits);
    let found = of_number().find(|port| port.protocol.as_deref().unwrap_or("TCP") == transport);
    let Some(port) = found else {
        return Err(if of_number().next().is_some() {
            let message = format!("port {shown} of Service {service} is not {transport}: use another port");
            Fault { reason: "UnsupportedProtocol", message }
        } else {
            let listed = listed();
            not_found(format!("Service {service} has no port {shown}, it has {listed}: correct the port"))
        });
    };
    Ok(port)
}

/// Does the port say that it speaks TLS, while nothing says which CA to trust? A gateway that decrypts must not send plain text there.
pub(crate) fn check_tls(service: &Key, port: &ServicePort, has_policy: bool) -> Result<(), Fault> {
    let protocol = port.app_protocol.as_deref().map(str::to_ascii_lowercase).unwrap_or_default();
    if TLS_APP_PROTOCOLS.contains(&protocol.as_str()) && !has_policy {
        return Err(Fault {
            reason: "UnsupportedProtocol",
            message: format!(
                "port {} of Service {service} has appProtocol {protocol}, and no policy says which CA to trust: \
                 create a BackendTLSPolicy for the Service",
                port.port
            ),
        });
    }
    Ok(())
}

/// Does the port say itself that it speaks plain text?
pub(crate) fn is_plain(port: &ServicePort) -> bool {
    let protocol = port.app_protocol.as_deref().map(str::to_ascii_lowercase).unwrap_or_default();
    PLAIN_APP_PROTOCOLS.contains(&protocol.as_str())
}

/// The version of HTTP that a backend of this port speaks, or why none can be spoken to it. It can by TLS where a
/// BackendTLSPolicy is for it.
pub(crate) fn check_protocol(service: &Key, port: &ServicePort, has_policy: bool) -> Result<Protocol, Fault> {
    let protocol = port.app_protocol.as_deref().map(str::to_ascii_lowercase).unwrap_or_default();
    if OTHER_APP_PROTOCOLS.contains(&protocol.as_str()) {
        return Err(Fault {
            reason: "UnsupportedProtocol",
            message: format!(
                "port {} of Service {service} has appProtocol {protocol}, which is not HTTP: use another port, or \
                 correct appProtocol",
                port.port
            ),
        });
    }
    check_tls(service, port, has_policy)?;
    let is_http2 = HTTP2_APP_PROTOCOLS.contains(&protocol.as_str());
    Ok(if is_http2 { Protocol::Http2 } else { Protocol::Http1 })
}
