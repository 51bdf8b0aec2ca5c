//! EndpointSlices of ExternalName Services.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::names::SERVICE_NAME_LABEL;
use model::{ExternalName, ExternalPort};

use crate::endpoints::EXTERNAL_NAME_ANNOTATION;

/// The EndpointSlice of the ExternalName Service `service` (`namespace/name`), with the addresses of its name. `None`: the name was
/// not looked up yet.
pub fn external_slice(service: &str, name: &ExternalName, addresses: Option<&[IpAddr]>) -> EndpointSlice {
    let (namespace, service) = service.split_once('/').unwrap_or(("", service));
    let port = |port: &ExternalPort| EndpointPort {
        name: Some(port.name.clone()),
        port: Some(port.port.into()),
        protocol: Some(if port.udp { "UDP" } else { "TCP" }.to_owned()),
        ..EndpointPort::default()
    };
    let endpoint =
        |address: &IpAddr| Endpoint { addresses: vec![address.to_string()], ..Endpoint::default() };
    let host = if addresses.is_some() { name.host.clone() } else { String::new() };
    EndpointSlice {
        address_type: "IPv4".to_owned(),
        metadata: ObjectMeta {
            name: Some(format!("{service}-external-name")),
            namespace: Some(namespace.to_owned()),
            labels: Some([(SERVICE_NAME_LABEL.to_owned(), service.to_owned())].into()),
            annotations: Some([(EXTERNAL_NAME_ANNOTATION.to_owned(), host)].into()),
            ..ObjectMeta::default()
        },
        endpoints: Some(addresses.unwrap_or_default().iter().map(endpoint).collect()),
        ports: Some(name.ports.iter().map(port).collect()),
    }
}
