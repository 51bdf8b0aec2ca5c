//! One Gateway of ours: its listeners, its parameters, and what routes add to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gateway_api::gateways::Gateway as GatewayObject;
use model::names::VARNISH_SERVICE_LABEL;
use model::routing::Routing;

use crate::GatewayPlan;
use crate::addresses::Addresses;
use crate::certificates::{Certificates, ClientCertificate};
use crate::client_validation::Clients;
use crate::gateway_class::Class;
use crate::grants::Grants;
use crate::infra::{Infra, Socket};
use crate::listener::{Fault, Listener, Protocol};
use crate::listener_set::{self, Set, Sets};
use crate::notice::Notice;
use crate::parameters::{Parameters, Reference, UserVclText};
use crate::snapshot::{Key, Objects, Snapshot};
use crate::status::{
    ACCEPTED, Condition, GatewayStatus, INSECURE_FRONTEND, ListenerSetStatus, PARAMETERS_VALID, RESOLVED_REFS,
};
use crate::vcl::{self, UserVcl};

/// A Gateway while routes are being attached to it.
#[derive(Debug)]
pub(crate) struct Gateway<'a> {
    pub(crate) key: &'a Key,
    object: &'a GatewayObject,
    /// Those of its ListenerSets come behind its own.
    pub(crate) listeners: Vec<Listener<'a>>,
    /// All that name it, each with the reason why it may not.
    sets: Vec<(&'a Set<'a>, Option<String>)>,
    certificates: Certificates<'a>,
    /// What backends with TLS are shown.
    pub(crate) client_certificate: Option<ClientCertificate>,
    /// Where clients without a valid certificate are served; none: for all ports without their own setting.
    insecure: Vec<String>,
    /// The requirements for client certificates on a port that is opened for Ingresses.
    pub(crate) ingress_validation: Option<model::ClientValidation>,
    parameters: Parameters<'a>,
    addresses: Addresses,
    pub(crate) routing: Routing,
}

/// All Gateways of our classes, and those that were made for IngressClasses.
pub(crate) fn ours<'a>(
    snapshot: &'a Snapshot,
    made: &'a Objects<GatewayObject>,
    classes: &[Class<'_>],
    sets: &'a Sets<'a>,
    grants: &'a Grants<'a>,
    notices: &mut Vec<Notice>,
) -> BTreeMap<&'a Key, Gateway<'a>> {
    let mut gateways = BTreeMap::new();
    for (key, object) in made {
        gateways.insert(key, Gateway::new(key, object, None, &[], grants, snapshot));
    }
    for (key, object) in &snapshot.gateways {
        let class_name = &object.spec.gateway_class_name;
        if let Some(class) = classes.iter().find(|class| class.key.name == *class_name) {
            gateways
                .insert(key, Gateway::new(key, object, Some(class), sets.of_gateway(key), grants, snapshot));
        } else if !snapshot.gateway_classes.contains_key(&Key::cluster(class_name)) {
            notices.push(Notice::warning(
                format!("Gateway {key}"),
                format!(
                    "names GatewayClass {class_name}, which does not exist, so no controller serves it: create the class \
                     with controllerName {}, or correct spec.gatewayClassName",
                    snapshot.controllers.gateway
                ),
            ));
        }
    }
    gateways
}

/// The same for all pods of a Gateway, and no other's: clusters may have Gateways of one name in a row.
fn gateway_id(key: &Key, uid: &str) -> String {
    let hash = crate::infra::sha256(&(&key.namespace, &key.name, uid));
    format!("vg-{}", hash.get(..16).unwrap_or(&hash))
}

impl<'a> Gateway<'a> {
    fn new(
        key: &'a Key,
        object: &'a GatewayObject,
        class: Option<&Class<'_>>,
        sets: &'a [Set<'a>],
        grants: &'a Grants<'a>,
        snapshot: &'a Snapshot,
    ) -> Self {
        let whose_class = class.map(|class| format!("spec.parametersRef of GatewayClass {}", class.key));
        let of_class = class.and_then(Class::parameters_ref);
        let of_class = whose_class.as_deref().zip(of_class);
        let own = object.spec.infrastructure.as_ref().and_then(|infrastructure| {
            let reference = infrastructure.parameters_ref.as_ref()?;
            Some(Reference { group: &reference.group, kind: &reference.kind, name: &reference.name })
        });
        let own = own.map(|reference| ("spec.infrastructure.parametersRef", reference));
        let parameters = Parameters::new(of_class, own, key, class.is_none(), snapshot);

        let mut listeners = Listener::all(&object.spec.listeners);
        let refused = |set: &Set<'_>| listener_set::allow(key, object, &set.key.namespace, snapshot).err();
        let sets: Vec<_> = sets.iter().map(|set| (set, refused(set))).collect();
        let allowed = sets.iter().filter(|(_, refused)| refused.is_none());
        Listener::join(
            &mut listeners,
            allowed.map(|(set, _)| (set.key, &set.listeners[..], set.closed.as_ref())),
        );
        listeners.iter_mut().for_each(Listener::read_tls_options);
        let clients = Clients::new(key, object, grants, snapshot);
        clients.judge(&mut listeners);
        let mut certificates = Certificates::new(key, grants, snapshot);
        listeners.iter_mut().for_each(|listener| listener.find_certificates(&mut certificates));
        let backend = object.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
        let client_certificate = backend
            .and_then(|backend| backend.client_certificate_ref.as_ref())
            .map(|reference| certificates.of_client(reference));
        let pairs = |listener: &Listener<'_>| {
            let found = listener.certificates.as_ref()?;
            let options = listener.tls_options.clone();
            Some(model::ListenerTls { certificates: found.names.clone(), options, ..Default::default() })
        };
        let routing = Routing {
            listeners: routed(&listeners)
                .filter(|listener| matches!(listener.protocol, Protocol::Http | Protocol::Https))
                .map(|listener| model::Listener {
                    name: listener.routing_name(),
                    socket: listener.socket(),
                    hostname: listener.hostname.clone(),
                    tls: pairs(listener),
                })
                .collect(),
            tls_listeners: routed(&listeners)
                .filter(|listener| listener.protocol == Protocol::Tls)
                .map(|listener| model::TlsListener {
                    name: listener.routing_name(),
                    socket: listener.socket(),
                    hostname: listener.hostname.clone(),
                    tls: pairs(listener),
                    hosts: Vec::new(),
                    removed: Vec::new(),
                })
                .collect(),
            stream_listeners: routed(&listeners)
                .filter(|listener| matches!(listener.protocol, Protocol::Tcp | Protocol::Udp))
                .map(|listener| model::StreamListener {
                    name: listener.routing_name(),
                    socket: listener.socket(),
                    ..model::StreamListener::default()
                })
                .collect(),
            client_validation: clients.by_port(&listeners),
            authorities: clients.authorities(),
            tls_limits: parameters.tls_limits.clone(),
            client_limits: parameters.client_limits.clone(),
            proxy_protocol: parameters.proxy_protocol.clone(),
            timeouts: parameters.timeouts,
            trusted_proxies: parameters.trusted_proxies.clone(),
            gateway_id: object.metadata.uid.as_deref().map(|uid| gateway_id(key, uid)),
            cache_status_header: (!parameters.cache_status_header).then_some(false),
            route_metrics: (!parameters.route_metrics).then_some(false),
            request_log: (parameters.workload.writes_json() && !parameters.http_in_front).then_some(true),
            trace_sampling: parameters.trace_sampling,
            paths: parameters.paths,
            http_in_front: parameters.http_in_front,
            through_varnishd: parameters.through_varnishd,
            hot_objects_off: parameters.hot_objects.disabled,
            ..Routing::default()
        };
        let insecure = clients.insecure_ports();
        let ingress_validation = clients.for_port(parameters.ingress.https_port);
        Self {
            key,
            object,
            listeners,
            sets,
            certificates,
            client_certificate,
            insecure,
            ingress_validation,
            parameters,
            addresses: Addresses::of(object),
            routing,
        }
    }

    /// Does its Service carry the label by which Ingresses find it?
    pub(crate) fn is_varnish_service(&self) -> bool {
        let (label, value) = VARNISH_SERVICE_LABEL;
        let own = self.object.spec.infrastructure.as_ref().and_then(|own| own.labels.as_ref()?.get(label));
        own.or_else(|| self.parameters.workload.service.labels.get(label)).is_some_and(|there| there == value)
    }

    /// The IngressClass that it was made for, if it is not a user's.
    pub(crate) fn made_for(&self) -> Option<&str> {
        crate::ingress::owner(self.object).map(|owner| owner.name.as_str())
    }

    /// May its routes lead to Services of type ExternalName?
    pub(crate) fn external_names(&self) -> api::ExternalNames {
        self.parameters.external_names
    }

    pub(crate) fn ingress_options(&self) -> &crate::ingress::Options {
        &self.parameters.ingress
    }

    /// The Secret of an Ingress with TLS, if it is there; and what is wrong with it, if so.
    pub(crate) fn certificate(&mut self, secret: &Key) -> (Option<String>, Option<Fault>) {
        self.certificates.of_ingress(secret)
    }

    pub(crate) fn status(&self) -> GatewayStatus {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let mut conditions = vec![self.accepted(generation)];
        conditions.extend(self.resolved_refs(generation));
        if !self.insecure.is_empty() {
            let message = format!(
                "Clients without a valid certificate are served: tls.frontend has mode AllowInsecureFallback for {}",
                self.insecure.join(", ")
            );
            conditions.push(Condition::new(
                INSECURE_FRONTEND,
                true,
                "ConfigurationChanged",
                message,
                generation,
            ));
        }
        conditions.extend(self.parameters_valid(generation));
        let listeners = self.own_listeners().map(|listener| listener.status(generation)).collect();
        let is_accepted = |status: &ListenerSetStatus| status.conditions.iter().any(|one| one.status);
        let attached = self.set_statuses().filter(|(_, status)| is_accepted(status)).count();
        GatewayStatus {
            conditions,
            listeners,
            attached_listener_sets: i32::try_from(attached).unwrap_or(i32::MAX),
        }
    }

    /// Without those of ListenerSets.
    fn own_listeners(&self) -> impl Iterator<Item = &Listener<'a>> {
        self.listeners.iter().filter(|listener| listener.set.is_none())
    }

    pub(crate) fn set_statuses(&self) -> impl Iterator<Item = (Key, ListenerSetStatus)> {
        let is_accepted = self.accepted(0).status;
        self.sets.iter().map(move |(set, refused)| {
            (set.key.clone(), set.status(self.key, is_accepted, refused.as_deref(), &self.listeners))
        })
    }

    fn accepted(&self, generation: i64) -> Condition {
        if let Some(fatal) = self.parameters.fatal() {
            return Condition::new(ACCEPTED, false, "InvalidParameters", fatal, generation);
        }
        if let Some(why) = &self.addresses.unsupported {
            return Condition::new(ACCEPTED, false, "UnsupportedAddress", why, generation);
        }
        let refused: Vec<String> = self
            .own_listeners()
            .filter_map(|listener| {
                Some(format!("listener {}: {}", listener.name(), listener.why_not_served()?))
            })
            .collect();
        if refused.is_empty() {
            return Condition::new(
                ACCEPTED,
                true,
                "Accepted",
                "The Gateway and all its listeners are valid",
                generation,
            );
        }
        let served: Vec<&str> =
            self.own_listeners().filter(|listener| listener.is_served()).map(Listener::name).collect();
        let served = if served.is_empty() {
            "No listener is served".to_owned()
        } else {
            format!("Served: {}. Not served", served.join(", "))
        };
        let message = format!("{served}: {}", refused.join("; "));
        // A certificate that is missing is the listener's concern (ResolvedRefs), not a fault of the Gateway.
        let any = self.own_listeners().any(|listener| listener.fault.is_none());
        Condition::new(ACCEPTED, any, "ListenersNotValid", message, generation)
    }

    /// Only where the Gateway itself refers to something; what listeners refer to, they say.
    fn resolved_refs(&self, generation: i64) -> Option<Condition> {
        let client = self.client_certificate.as_ref()?;
        Some(match &client.fault {
            Some(fault) => Condition::new(RESOLVED_REFS, false, fault.reason, &fault.message, generation),
            None => {
                Condition::new(RESOLVED_REFS, true, "ResolvedRefs", "All references are resolved", generation)
            }
        })
    }

    fn parameters_valid(&self, generation: i64) -> Option<Condition> {
        let parameters = &self.parameters;
        if !parameters.given {
            return None;
        }
        let problems: Vec<String> =
            parameters.fatal().into_iter().chain(parameters.problems.iter().cloned()).collect();
        Some(if problems.is_empty() {
            let warnings: String = parameters.warnings.iter().map(|one| format!("; {one}")).collect();
            let message = format!("All parameters are in use{warnings}");
            Condition::new(PARAMETERS_VALID, true, "Valid", message, generation)
        } else {
            Condition::new(PARAMETERS_VALID, false, "InvalidParameters", problems.join("; "), generation)
        })
    }

    pub(crate) fn into_plan(self) -> GatewayPlan {
        // varnishd's own: the front opens and closes its sockets while varnishd runs. Sorted by port, so that the order of
        // listeners does not restart varnishd.
        let http_in_front = self.parameters.http_in_front;
        let sockets: BTreeSet<(u16, String, &str)> = routed(&self.listeners)
            .filter(|listener| listener.protocol == Protocol::Http && !http_in_front)
            .map(|listener| (listener.port, listener.socket(), listener.protocol.lower_case()))
            .collect();
        let sockets = sockets
            .into_iter()
            .map(|(port, name, protocol)| Socket { name, protocol: protocol.to_owned(), port })
            .collect();
        let certificates = self.certificates.good(self.routing.certificate_names());
        let parameters = self.parameters;
        let known = parameters.unresolved.is_empty();
        let main_vcl = match &parameters.user_vcl {
            _ if !known => None,
            UserVclText::None => Some(vcl::main_vcl(None)),
            UserVclText::Found { origin, text } => Some(vcl::main_vcl(Some(&UserVcl { origin, text }))),
            UserVclText::Missing(_) => None,
        };
        let infra = known.then_some(Infra {
            sockets,
            http_in_front,
            varnishd_args: parameters.varnishd_args,
            upgrade_idle_seconds: parameters.upgrade_idle_seconds,
            hot_objects: parameters.hot_objects,
        });
        let mut workload = parameters.workload;
        workload.service.addresses = self.addresses.usable;
        let workload = known.then_some(workload);
        let parameters = parameters.kept;
        let certificates = Arc::new(certificates);
        GatewayPlan { routing: self.routing, certificates, parameters, main_vcl, infra, workload }
    }
}

fn routed<'l, 'a>(listeners: &'l [Listener<'a>]) -> impl Iterator<Item = &'l Listener<'a>> {
    listeners.iter().filter(|listener| listener.is_routed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_id_is_its_own() {
        let id = |namespace: &str, name: &str, uid: &str| gateway_id(&Key::new(namespace, name), uid);
        let ours = id("default", "web", "1");
        assert_eq!(ours, id("default", "web", "1"));
        // One of the same name may stand in another cluster, in front of this one.
        for other in [id("default", "web", "2"), id("default", "api", "1"), id("other", "web", "1")] {
            assert_ne!(ours, other);
        }
        assert!(ours.len() == 19 && ours.starts_with("vg-"), "{ours}");
    }
}
