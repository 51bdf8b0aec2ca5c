//! Endpoints by Service, out of all EndpointSlices.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use model::ghost::Endpoint;

use model::names::SERVICE_NAME_LABEL;
use model::notice::Notice;

/// On slices that stand for a name: the name. Empty: it was not looked up yet.
pub(crate) const EXTERNAL_NAME_ANNOTATION: &str = "gateway.varnish-software.com/external-name";

/// The ready endpoints of all Services. A Service has as many slices as it needs: for more than a hundred pods, for
/// each family of addresses, for each set of ports.
#[derive(Debug, Clone, Default)]
pub struct EndpointIndex {
    /// By namespace, then by Service. Indexes that follow each other share what has not changed.
    services: HashMap<Arc<str>, HashMap<Arc<str>, Arc<Slices>>>,
    /// Ports of this machine that are the gateway's own.
    own: Vec<u16>,
}

/// What EndpointSlices say of one Service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices {
    /// What it was made of, where that is known. The allocations stay, so no other slice has their addresses.
    made_of: Vec<Weak<EndpointSlice>>,
    slices: Vec<Slice>,
    /// About slices and addresses that cannot be used.
    pub(crate) notices: Vec<Notice>,
    /// The name that the addresses are of. Empty: it was not looked up yet.
    pub(crate) external_name: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Slice {
    ports: Vec<Port>,
    /// Ready ones only.
    addresses: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq)]
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

/// The endpoints of one port, or why there are none.
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
        let mut found: HashMap<&str, HashMap<&str, Slices>> = HashMap::new();
        for slice in slices {
            let Some((namespace, service)) = service_of(slice) else { continue };
            found.entry(namespace).or_default().entry(service).or_default().add(slice);
        }
        let services = found.into_iter().map(|(namespace, services)| {
            let services = services.into_iter().map(|(name, slices)| (name.into(), Arc::new(slices)));
            (namespace.into(), services.collect())
        });
        Self { services: services.collect(), own: Vec::new() }
    }

    /// The same for slices of which most are the very same as at the last time. Only Services with other slices are read.
    pub fn following<'a>(&self, slices: impl IntoIterator<Item = &'a Arc<EndpointSlice>>) -> Self {
        let mut found: HashMap<&str, HashMap<&str, Vec<&Arc<EndpointSlice>>>> = HashMap::new();
        for slice in slices {
            let Some((namespace, service)) = service_of(slice) else { continue };
            found.entry(namespace).or_default().entry(service).or_default().push(slice);
        }
        let services = found.into_iter().map(|(namespace, services)| {
            let (namespace, before) = match self.services.get_key_value(namespace) {
                Some((name, before)) => (Arc::clone(name), Some(before)),
                None => (namespace.into(), None),
            };
            let services = services.into_iter().map(|(name, slices)| {
                match before.and_then(|before| before.get_key_value(name)) {
                    Some((name, known)) if known.is_made_of(&slices) => (Arc::clone(name), Arc::clone(known)),
                    Some((name, known)) => {
                        let new = Slices::of(&slices);
                        (Arc::clone(name), if new == **known { Arc::clone(known) } else { Arc::new(new) })
                    }
                    None => (name.into(), Arc::new(Slices::of(&slices))),
                }
            });
            (namespace, services.collect())
        });
        Self { services: services.collect(), own: Vec::new() }
    }

    /// Services whose endpoints differ from those that `older` has, by namespace and name.
    pub fn differing<'a>(&'a self, older: &'a Self) -> HashSet<(&'a str, &'a str)> {
        let (now, before) = (self.services.iter(), older.services.iter());
        let changed = now.flat_map(|(namespace, services)| {
            let before = older.services.get(namespace);
            let is_same = move |name: &str, slices: &Arc<Slices>| {
                before
                    .and_then(|before| before.get(name))
                    .is_some_and(|known| Arc::ptr_eq(known, slices) || **known == **slices)
            };
            let changed = services.iter().filter(move |(name, slices)| !is_same(name, slices));
            changed.map(move |(name, _)| (&**namespace, &**name))
        });
        let gone = before.flat_map(|(namespace, services)| {
            let now = self.services.get(namespace);
            let gone = services.keys().filter(move |name| now.is_none_or(|now| !now.contains_key(*name)));
            gone.map(move |name| (&**namespace, &**name))
        });
        changed.chain(gone).collect()
    }

    /// Are the same ports the gateway's own?
    pub fn has_same_own_ports(&self, other: &Self) -> bool {
        let sorted = |index: &Self| index.own.iter().copied().collect::<BTreeSet<u16>>();
        sorted(self) == sorted(other)
    }

    /// With these slices in place of all others of the same Services.
    pub fn replacing<'a>(mut self, slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Self {
        for (namespace, services) in Self::new(slices).services {
            self.services.entry(namespace).or_default().extend(services);
        }
        self
    }

    /// With the ports of this machine that are the gateway's own, and trust clients on loopback: no route leads to them.
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
        self.services.get(namespace)?.get(name).map(|slices| &**slices)
    }
}

/// Namespace and name of the Service that a slice belongs to.
fn service_of(slice: &EndpointSlice) -> Option<(&str, &str)> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some((slice.metadata.namespace.as_deref().unwrap_or_default(), name))
}

/// By what they say, whatever they were made of.
impl PartialEq for Slices {
    fn eq(&self, other: &Self) -> bool {
        self.slices == other.slices
            && self.notices == other.notices
            && self.external_name == other.external_name
    }
}

impl Slices {
    fn of(slices: &[&Arc<EndpointSlice>]) -> Self {
        let mut new =
            Self { made_of: slices.iter().map(|slice| Arc::downgrade(slice)).collect(), ..Self::default() };
        slices.iter().for_each(|slice| new.add(slice));
        new
    }

    fn is_made_of(&self, slices: &[&Arc<EndpointSlice>]) -> bool {
        let is_same = |(known, new): (&Weak<EndpointSlice>, &&Arc<EndpointSlice>)| {
            std::ptr::eq(known.as_ptr(), Arc::as_ptr(new))
        };
        self.made_of.len() == slices.len() && self.made_of.iter().zip(slices).all(is_same)
    }

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(namespace: &str, service: &str, address: &str) -> Arc<EndpointSlice> {
        let json = json!({
            "metadata": {"name": "s", "namespace": namespace, "labels": {SERVICE_NAME_LABEL: service}},
            "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [{"port": 80}],
        });
        Arc::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn an_index_that_follows_another_differs_in_what_changed_alone() {
        let mut slices = vec![
            slice("a", "one", "10.0.0.1"),
            slice("a", "two", "10.0.0.2"),
            slice("b", "one", "10.0.0.3"),
            slice("b", "gone", "10.0.0.4"),
        ];
        let first = EndpointIndex::default().following(&slices);
        assert!(first.following(&slices).differing(&first).is_empty());
        slices.pop();
        // A new object that says the same, and one that says something else.
        slices[0] = slice("a", "one", "10.0.0.1");
        slices[1] = slice("a", "two", "10.0.0.7");
        slices.push(slice("c", "new", "10.0.0.8"));
        let second = first.following(&slices);
        assert_eq!(second.differing(&first), HashSet::from([("a", "two"), ("b", "gone"), ("c", "new")]));
        let fresh = EndpointIndex::new(slices.iter().map(AsRef::as_ref));
        assert!(second.differing(&fresh).is_empty() && fresh.differing(&second).is_empty());
        let unchanged = |index: &EndpointIndex| Arc::clone(&index.services["b"]["one"]);
        assert!(Arc::ptr_eq(&unchanged(&first), &unchanged(&second)));
        assert!(second.has_same_own_ports(&first) && !second.refusing([80]).has_same_own_ports(&first));
    }
}
