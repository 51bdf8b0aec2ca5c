//! ExternalName Services: the addresses of their names, as EndpointSlices.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dns::{Known, Name, Names, Settings, Wanted};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use model::routing::Routing;
use model::{ExternalName, ExternalNames};
use resolve::{EndpointIndex, external_slice};
use tokio::sync::watch;

/// The label by which an EndpointSlice belongs to a Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// At the start, for the first answers of DNS. Later on a name that is new holds back no other change.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks names up, and turns them into slices. One that has not changed is the same object, so that others can see that.
pub(crate) struct Externals {
    names: Names,
    /// By Service, and whether private addresses are refused.
    made: BTreeMap<(String, bool), Made>,
}

struct Made {
    name: ExternalName,
    addresses: Option<Arc<[IpAddr]>>,
    slice: Arc<EndpointSlice>,
}

impl Externals {
    /// Must be called in a runtime of tokio.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { names: Names::start(settings), made: BTreeMap::new() }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Known> {
        self.names.changes()
    }

    /// All names that Gateways have; others are forgotten.
    pub(crate) fn want<'a>(&mut self, all: impl IntoIterator<Item = &'a ExternalNames>) {
        let mut wanted = Wanted::new();
        let mut services = BTreeSet::new();
        for names in all {
            for (service, of) in &names.services {
                let name = Name { host: of.host.clone(), public_only: names.public_only };
                wanted.entry(name).or_default().insert(service.clone());
                services.insert((service.clone(), names.public_only));
            }
        }
        self.made.retain(|of, _| services.contains(of));
        self.names.want(wanted);
    }

    /// Waits for the first answer to each name, for a short time.
    pub(crate) async fn settle(&self) {
        self.names.settle(PATIENCE).await;
    }

    /// One slice for each Service.
    pub(crate) fn slices(&mut self, of: &ExternalNames) -> Vec<Arc<EndpointSlice>> {
        let known = self.names.known();
        let slice = |(service, name): (&String, &ExternalName)| {
            let host = Name { host: name.host.clone(), public_only: of.public_only };
            let addresses = known.get(&host).cloned();
            let key = (service.clone(), of.public_only);
            let is_same = |made: &&Made| made.name == *name && made.addresses == addresses;
            if let Some(made) = self.made.get(&key).filter(is_same) {
                return Arc::clone(&made.slice);
            }
            let slice = Arc::new(external_slice(service, name, addresses.as_deref()));
            self.made.insert(key, Made { name: name.clone(), addresses, slice: Arc::clone(&slice) });
            slice
        };
        of.services.iter().map(slice).collect()
    }

    /// With what is known of the names that the Gateway's routes lead to.
    pub(crate) fn endpoints_of<'e>(
        &mut self,
        routing: &Routing,
        endpoints: &'e EndpointIndex,
    ) -> Cow<'e, EndpointIndex> {
        let Some(external) = &routing.external_names else { return Cow::Borrowed(endpoints) };
        let slices = self.slices(external);
        Cow::Owned(endpoints.clone().replacing(slices.iter().map(AsRef::as_ref)))
    }

    /// These slices, with those of names. Others that claim to be of the same Services are left out.
    pub(crate) fn beside(
        &mut self,
        of: Option<&ExternalNames>,
        mut slices: Vec<Arc<EndpointSlice>>,
    ) -> Vec<Arc<EndpointSlice>> {
        if let Some(of) = of {
            slices.retain(|slice| service(slice).is_none_or(|service| !of.services.contains_key(&service)));
            slices.extend(self.slices(of));
        }
        slices
    }
}

/// `namespace/name` of the Service that a slice belongs to.
fn service(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref().unwrap_or_default()))
}

/// Looks up all names once, so that `check` and `explain` know where requests would go.
pub(crate) async fn look_up<'a>(all: impl IntoIterator<Item = &'a ExternalNames>) -> Externals {
    let mut externals = Externals::new(Settings::default());
    externals.want(all);
    externals.settle().await;
    externals
}

#[cfg(test)]
mod tests;
