//! Endpoints by Service, out of all EndpointSlices.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use model::ghost::Endpoint;

use crate::notice::Notice;

/// The label by which an EndpointSlice belongs to a Service of its namespace.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// On slices that stand for a name: the name. Empty: nobody has looked it up.
pub(crate) const EXTERNAL_NAME_ANNOTATION: &str = "gateway.varnish-software.com/external-name";

/// The ready endpoints of all Services. A Service has as many slices as it needs: for more than a hundred pods, for
/// each family of addresses, for each set of ports.
#[derive(Debug, Clone, Default)]
pub struct EndpointIndex {
    /// By namespace, then by Service.
    services: HashMap<String, HashMap<String, Slices>>,
    /// Ports of this machine that are the gateway's own.
    own: Vec<u16>,
}

/// What EndpointSlices say of one Service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices {
    slices: Vec<Slice>,
    /// About slices and addresses that cannot be used.
    pub(crate) notices: Vec<Notice>,
    /// The name that the addresses are of. Empty: nobody has looked it up.
    pub(crate) external_name: Option<String>,
}

#[derive(Debug, Clone)]
struct Slice {
    ports: Vec<Port>,
    /// Ready ones only.
    addresses: Vec<IpAddr>,
}

#[derive(Debug, Clone)]
struct Port {
    /// Empty for a port without name.
    name: String,
    number: u16,
    transport: Transport,
}

/// What the connections of a route need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    fn of(protocol: Option<&str>) -> Option<Self> {
        match protocol.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            _ => None,
        }
    }
}

/// The endpoints of one port, or what stands in the way of there being any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Endpoints(Vec<Endpoint>),
    /// No EndpointSlice belongs to the Service.
    NoSlice,
    /// There are slices, and none has the port. Names of the ports that they have.
    NoPort(Vec<String>),
    /// The port is there, but no endpoint is ready.
    NoneReady,
}

impl EndpointIndex {
    /// Takes the slices in any order; the answers do not depend on it.
    pub fn new<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Self {
        let mut index = Self::default();
        for slice in slices {
            let labels = slice.metadata.labels.as_ref();
            let Some(service) = labels.and_then(|labels| labels.get(SERVICE_NAME_LABEL)) else { continue };
            let namespace = slice.metadata.namespace.clone().unwrap_or_default();
            let of_namespace = index.services.entry(namespace).or_default();
            of_namespace.entry(service.clone()).or_default().add(slice);
        }
        index
    }

    /// With these slices in place of all others of the same Services.
    pub fn replacing<'a>(mut self, slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Self {
        for (namespace, services) in Self::new(slices).services {
            self.services.entry(namespace).or_default().extend(services);
        }
        self
    }

    /// With the ports of this machine that are the gateway's own, and trust whoever connects by loopback: no route leads to them.
    pub fn refusing(mut self, own: impl IntoIterator<Item = u16>) -> Self {
        self.own.extend(own);
        self
    }

    /// Is it a port of the gateway itself?
    pub(crate) fn is_own(&self, endpoint: &Endpoint) -> bool {
        let address = endpoint.address.to_canonical();
        (address.is_loopback() || address.is_unspecified()) && self.own.contains(&endpoint.port)
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Slices> {
        self.services.get(namespace)?.get(name)
    }
}

impl Slices {
    fn add(&mut self, slice: &EndpointSlice) {
        let object = || {
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            format!("EndpointSlice {namespace}/{}", slice.metadata.name.as_deref().unwrap_or_default())
        };
        let annotations = slice.metadata.annotations.as_ref();
        if let Some(name) = annotations.and_then(|annotations| annotations.get(EXTERNAL_NAME_ANNOTATION)) {
            self.external_name = Some(name.clone());
        }
        if slice.address_type == "FQDN" {
            self.notices.push(Notice::warning(
                object(),
                "has addressType FQDN, which is not supported, and is skipped: use IPv4 or IPv6 addresses",
            ));
            return;
        }
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            Some(Port {
                transport: Transport::of(port.protocol.as_deref())?,
                name: port.name.clone().unwrap_or_default(),
                number: u16::try_from(port.port?).ok().filter(|number| *number > 0)?,
            })
        });
        let mut addresses = Vec::new();
        // Absent means ready, as the API says.
        let ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
        };
        for address in slice.endpoints.iter().flatten().filter(ready).flat_map(|endpoint| &endpoint.addresses)
        {
            match IpAddr::from_str(address) {
                Ok(address) => addresses.push(address),
                Err(_) => self.notices.push(Notice::warning(
                    object(),
                    format!(
                        "has the address `{address}`, which is not an IP address, and is skipped: correct it"
                    ),
                )),
            }
        }
        self.slices.push(Slice { ports: ports.collect(), addresses });
    }

    /// All ready endpoints of a port: by its name where that is known, else by its number, else the only one.
    pub(crate) fn find(&self, port: Option<u16>, port_name: Option<&str>, transport: Transport) -> Found {
        let mut endpoints = Vec::new();
        let mut has_port = false;
        for slice in &self.slices {
            let mut ports = slice.ports.iter().filter(|port| port.transport == transport);
            let found = match port_name {
                Some(name) => ports.find(|port| port.name == name),
                None => ports.clone().find(|one| Some(one.number) == port).or_else(|| {
                    let only = ports.next()?;
                    ports.next().is_none().then_some(only)
                }),
            };
            let Some(port) = found else { continue };
            has_port = true;
            endpoints.extend(
                slice.addresses.iter().map(|address| Endpoint { address: *address, port: port.number }),
            );
        }
        if !endpoints.is_empty() {
            // While a pod moves from one slice to another it is in both.
            endpoints.sort_unstable();
            endpoints.dedup();
            return Found::Endpoints(endpoints);
        }
        match (self.slices.is_empty(), has_port) {
            (true, _) => Found::NoSlice,
            (false, true) => Found::NoneReady,
            (false, false) => {
                let ports = self.slices.iter().flat_map(|slice| &slice.ports);
                let ports = ports.filter(|port| port.transport == transport);
                let mut names: Vec<String> = ports.map(|port| port.name.clone()).collect();
                names.sort_unstable();
                names.dedup();
                Found::NoPort(names)
            }
        }
    }
}
