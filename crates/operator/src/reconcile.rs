//! From a change in the cluster to the desired state of each Gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use gateway_api::gateways::Gateway;
use kube::Client;
use source::kubernetes::{Cluster, Unreadable};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use translate::incremental::{Extent, Outcome};
use translate::snapshot::Objects;
use translate::status::{ACCEPTED, UNSUPPORTED_FIELDS};
use translate::{Condition, Incremental, Key, Snapshot, Statuses};
use workload::packing;

use crate::events::Events;
use crate::gateway::{Actor, Work, written};
use crate::invalidation::Invalidations;
use crate::metrics::Metrics;
use crate::owned::Owned;
use crate::status::{Runtimes, Writer};
use crate::sweep;
use crate::tally::Tally;
use crate::{Error, Settings};

/// After a sweep that failed.
const RETRY: Duration = Duration::from_secs(5);
/// How often everything is translated again, to check the result of incremental translations.
const VERIFY: Duration = Duration::from_secs(600);

/// Works until it is dropped.
pub(crate) async fn run(
    client: Client,
    settings: &Settings,
    cluster: Arc<Cluster>,
    owned: Arc<Owned>,
    metrics: Arc<Metrics>,
) -> Result<(), Error> {
    let runtimes = Runtimes::default();
    let statuses = watch::Sender::new(Arc::new(Statuses::default()));
    let mut changed = cluster.changed();
    let mut owned_changed = owned.made_changed();
    let mut first = cluster.snapshot().await;
    let mut work = Reconciler {
        client: client.clone(),
        options: options(settings),
        cluster: Arc::clone(&cluster),
        owned: Arc::clone(&owned),
        runtimes: runtimes.clone(),
        metrics: Arc::clone(&metrics),
        actors: BTreeMap::new(),
        translator: Incremental::default(),
        tally: Tally::default(),
        made: Objects::default(),
        former: BTreeMap::new(),
    };
    let (told, _) = work.bring(&mut first);
    statuses.send_replace(told);
    let writer = Writer {
        client: client.clone(),
        cluster: Arc::clone(&cluster),
        owned: Arc::clone(&owned),
        runtimes,
        desired: statuses.subscribe(),
        events: Events::new(client.clone(), &settings.controllers.gateway, &settings.identity),
        metrics: Arc::clone(&metrics),
    };
    let invalidations = Invalidations {
        client: client.clone(),
        cluster: Arc::clone(&cluster),
        owned: Arc::clone(&owned),
        events: writer.events.clone(),
        metrics,
    };
    let mut writer = Task(tokio::spawn(writer.run()));
    let mut invalidations = Task(tokio::spawn(invalidations.run()));
    let waking = Arc::clone(&owned);
    let wake = tasks::without_end("the waking of writers", move || {
        let owned = Arc::clone(&waking);
        async move { owned.wake_writers().await }
    });
    let _waking = Task(tokio::spawn(wake));
    let mut snapshot = first;
    let mut to_sweep = true;
    let mut verification = tokio::time::interval_at(tokio::time::Instant::now() + VERIFY, VERIFY);
    loop {
        let mut failed = false;
        if std::mem::take(&mut to_sweep) {
            let what = sweep::Known { snapshot: &snapshot, made: &work.made, missing: &cluster.missing() };
            if let Err(e) = sweep::sweep(&client, &cluster, &what, &owned).await {
                tracing::warn!("sweeping: {e}");
                failed = true;
            }
        }
        tokio::select! {
            _ = changed.changed() => {
                let begun = Instant::now();
                tracing::debug!(event = "change.observed", "something has changed");
                let mut new = cluster.snapshot().await;
                let taken = begun.elapsed();
                let (told, extent) = work.bring(&mut new);
                tracing::debug!(
                    event = "change.translated",
                    ?extent,
                    "snapshot taken in {taken:?}, translated in {:?}",
                    begun.elapsed() - taken
                );
                statuses.send_replace(told);
                snapshot = new;
                // A deleted route leaves no objects behind.
                to_sweep = failed || extent == Extent::Everything;
            }
            _ = owned_changed.changed() => to_sweep = true,
            _ = verification.tick() => {
                work.verify(&mut changed);
                to_sweep = failed;
            }
            () = tokio::time::sleep(RETRY), if failed => to_sweep = true,
            // Only a bug can end it. A restart of the whole process by Kubernetes is the best recovery.
            _ = &mut writer.0 => return Err(Error::Name("the writer of statuses has ended".to_owned())),
            _ = &mut invalidations.0 => return Err(Error::Name("the invalidation controller exited".to_owned())),
        }
    }
}

fn options(settings: &Settings) -> workload::Options {
    workload::Options {
        vinyl_image: settings.vinyl_image.clone(),
        image_pull_secrets: settings.image_pull_secrets.clone(),
        log_level: settings.log_level.clone(),
        cluster_role: settings.cluster_role.clone(),
        controller: model::names::controller_label(&settings.controllers.gateway),
        ..workload::Options::new(&settings.image)
    }
}

/// A task that ends with its holder.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Reconciler {
    client: Client,
    options: workload::Options,
    cluster: Arc<Cluster>,
    owned: Arc<Owned>,
    runtimes: Runtimes,
    metrics: Arc<Metrics>,
    actors: BTreeMap<Key, (watch::Sender<Arc<Work>>, Task)>,
    translator: Incremental,
    tally: Tally,
    /// Gateways that were made for IngressClasses.
    made: Objects<Gateway>,
    /// The last known parameters of each Gateway.
    former: BTreeMap<Key, Arc<str>>,
}

impl Reconciler {
    /// Compares the result of incremental translations with a full translation. If they differ, which is a bug, everything is
    /// translated again.
    fn verify(&mut self, changed: &mut watch::Receiver<u64>) {
        let begun = Instant::now();
        let is_right = tokio::task::block_in_place(|| self.translator.verify());
        tracing::debug!(
            event = "translation.verified",
            is_right,
            "translated everything in {:?}",
            begun.elapsed()
        );
        if !is_right {
            tracing::error!(
                event = "translation.differs",
                "the result of incremental translations differs from a full translation; it is corrected now: please report this"
            );
            changed.mark_changed();
        }
    }

    fn bring(&mut self, snapshot: &mut Snapshot) -> (Arc<Statuses>, Extent) {
        let begun = Instant::now();
        self.remember(snapshot);
        let snapshot = &*snapshot;
        // Let other tasks run in between.
        let outcome = tokio::task::block_in_place(|| self.translator.update(snapshot).clone());
        let Outcome { gateways, mut statuses, notices, made, extent } = outcome;
        self.metrics.translation_seconds.observe(begun.elapsed().as_secs_f64());
        for notice in notices {
            tracing::debug!("{notice}");
        }
        self.actors.retain(|key, _| {
            let object = snapshot.gateways.get(key).or_else(|| made.get(key));
            let kept = gateways.contains_key(key) && !object.is_some_and(|g| sweep::is_going(g));
            if !kept {
                self.runtimes.forget(key);
                self.metrics.brought(key);
            }
            kept
        });
        self.former.retain(|key, _| gateways.contains_key(key));
        for (key, plan) in gateways {
            if let Some(parameters) = &plan.parameters {
                self.former.insert(key.clone(), Arc::clone(parameters));
            }
            let object = snapshot.gateways.get(&key).or_else(|| made.get(&key));
            let Some(gateway) = object.filter(|gateway| !sweep::is_going(gateway)) else { continue };
            let work = Work { gateway: Arc::clone(gateway), plan };
            match self.actors.get(&key) {
                Some((sender, task)) if !task.0.is_finished() => {
                    sender.send_if_modified(|old| {
                        let new = **old != work;
                        if new {
                            self.metrics.to_be_brought(&key);
                            *old = Arc::new(work);
                        }
                        new
                    });
                }
                _ => self.start(key, work),
            }
        }
        unreadable(&self.cluster.unreadable(), &mut statuses);
        macro_rules! ignored_by_routes {
            ($($routes:ident),+) => {$(
                for (key, fields) in self.cluster.$routes.ignored() {
                    let generation = snapshot.$routes.get(&key).and_then(|route| route.metadata.generation);
                    let parents = statuses.$routes.get_mut(&key).into_iter().flat_map(|status| &mut status.parents);
                    for parent in parents {
                        not_supported(&mut parent.conditions, &fields, generation);
                    }
                }
            )+};
        }
        ignored_by_routes!(http_routes, grpc_routes, tls_routes, tcp_routes, udp_routes);
        for (key, fields) in self.cluster.listener_sets.ignored() {
            let generation = snapshot.listener_sets.get(&key).and_then(|set| set.metadata.generation);
            if let Some(status) = statuses.listener_sets.get_mut(&key) {
                not_supported(&mut status.conditions, &fields, generation);
            }
        }
        for (key, fields) in self.cluster.gateways.ignored() {
            let generation = snapshot.gateways.get(&key).and_then(|gateway| gateway.metadata.generation);
            if let Some(status) = statuses.gateways.get_mut(&key) {
                not_supported(&mut status.conditions, &fields, generation);
            }
        }
        for (key, fields) in self.cluster.parameters.ignored() {
            ignored_parameters(&key, &fields, snapshot, &mut statuses);
        }
        self.tally.count(&statuses, &self.metrics);
        self.made = made;
        (Arc::new(statuses), extent)
    }

    /// The last known parameters: those that this process has seen, or those that the operator before it wrote. For a Gateway that
    /// was made for an IngressClass only those that this process has seen: its parameters decide which namespace gets certificates,
    /// and an object inside of a namespace must not decide that.
    fn remember(&self, snapshot: &mut Snapshot) {
        let mut all = self.former.clone();
        for (key, gateway) in snapshot.gateways.iter().filter(|(key, _)| !self.former.contains_key(key)) {
            if let Some(text) = written(&self.owned, key, gateway, packing::PARAMETERS) {
                all.insert(key.clone(), text);
            }
        }
        snapshot.former_parameters = all;
    }

    fn start(&mut self, key: Key, work: Work) {
        self.metrics.to_be_brought(&key);
        let (sender, receiver) = watch::channel(Arc::new(work));
        let actor = Actor {
            client: self.client.clone(),
            key: key.clone(),
            owned: Arc::clone(&self.owned),
            options: self.options.clone(),
            runtimes: self.runtimes.clone(),
            metrics: Arc::clone(&self.metrics),
            secret: OnceLock::new(),
            last_vcl: Mutex::default(),
        };
        let name = format!("the writer of Gateway {key}");
        let writing =
            tokio::spawn(async move { while tasks::panicked(&name, actor.run(receiver.clone())).await {} });
        self.actors.insert(key, (sender, Task(writing)));
    }
}

/// Reports unknown fields as being without effect, together with fields that are known and not supported.
fn not_supported(conditions: &mut Vec<Condition>, fields: &[String], generation: Option<i64>) {
    let fields = fields.join(", ");
    if let Some(condition) = conditions.iter_mut().find(|condition| condition.kind == UNSUPPORTED_FIELDS) {
        condition.message.push_str(&format!(", {fields}"));
        return;
    }
    let message = format!("Not supported yet, and without effect: {fields}");
    let generation = generation.unwrap_or_default();
    conditions.push(Condition::new(UNSUPPORTED_FIELDS, true, "NotSupported", message, generation));
}

/// GatewayClassParameters have no status of their own: the Gateways and GatewayClasses that name them say it.
fn ignored_parameters(key: &Key, fields: &[String], snapshot: &Snapshot, statuses: &mut Statuses) {
    let fields: Vec<String> =
        fields.iter().map(|field| format!("{field} of GatewayClassParameters {}", key.name)).collect();
    let is_named = |kind: &str, name: &str| kind == "GatewayClassParameters" && name == key.name;
    let of_class = |class: &Key| {
        let class = snapshot.gateway_classes.get(class)?;
        class.spec.parameters_ref.as_ref().filter(|one| is_named(&one.kind, &one.name))
    };
    for (class, status) in statuses.gateway_classes.iter_mut() {
        if of_class(class).is_some() {
            let generation = snapshot.gateway_classes.get(class).and_then(|class| class.metadata.generation);
            not_supported(&mut status.conditions, &fields, generation);
        }
    }
    for (gateway, status) in statuses.gateways.iter_mut() {
        let Some(object) = snapshot.gateways.get(gateway) else { continue };
        let own = object.spec.infrastructure.as_ref().and_then(|one| one.parameters_ref.as_ref());
        if own.is_some_and(|one| is_named(&one.kind, &one.name))
            || of_class(&Key::cluster(&object.spec.gateway_class_name)).is_some()
        {
            not_supported(&mut status.conditions, &fields, object.metadata.generation);
        }
    }
}

/// If an object cannot be read and its last good version stays in use, its status says so: the status was made from that version.
fn unreadable(all: &[Unreadable], statuses: &mut Statuses) {
    for Unreadable { kind, key, unread, .. } in all.iter().filter(|one| one.is_kept) {
        let message = format!(
            "Its last good version stays in use, because this version cannot be used: {}",
            unread.reason()
        );
        let policies = match *kind {
            "BackendTLSPolicy" => statuses.backend_tls_policies.get_mut(key),
            "VarnishCachePolicy" => statuses.cache_policies.get_mut(key),
            _ => None,
        };
        let set = (*kind == "ListenerSet").then(|| statuses.listener_sets.get_mut(key)).flatten();
        let ancestors = policies.into_iter().flat_map(|status| &mut status.ancestors);
        let policies: Vec<_> = ancestors
            .map(|ancestor| &mut ancestor.conditions)
            .chain(set.map(|status| &mut status.conditions))
            .map(|conditions| (conditions, "Invalid"))
            .collect();
        let conditions = if policies.is_empty() {
            let routes = statuses.routes_mut(kind).and_then(|routes| routes.get_mut(key));
            let parents = routes.into_iter().flat_map(|status| &mut status.parents);
            parents.map(|parent| (&mut parent.conditions, "UnsupportedValue")).collect()
        } else {
            policies
        };
        for (conditions, reason) in conditions {
            for condition in conditions.iter_mut().filter(|condition| condition.kind == ACCEPTED) {
                let generation = condition.observed_generation;
                *condition = Condition::new(ACCEPTED, false, reason, message.clone(), generation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gateway_api::experimental::httproutes::HttpRouteParentRefs;
    use translate::status::RESOLVED_REFS;
    use translate::{ParentStatus, RouteStatus};

    use super::*;

    #[test]
    fn a_field_that_nobody_knows_is_said_to_be_without_effect() {
        let mut conditions = Vec::new();
        not_supported(&mut conditions, &["spec.rules.0.retry".to_owned()], Some(3));
        not_supported(&mut conditions, &["spec.rules.1.retry".to_owned()], Some(3));
        assert_eq!(conditions.len(), 1);
        assert_eq!(
            conditions[0].message,
            "Not supported yet, and without effect: spec.rules.0.retry, spec.rules.1.retry"
        );
    }

    #[test]
    fn unknown_fields_of_parameters_are_in_the_status_of_gateways_and_classes_that_name_them() {
        let parameters = serde_json::json!({"group": "gateway.varnish-software.com", "kind": "GatewayClassParameters", "name": "p"});
        let class = |name: &str, parameters: &serde_json::Value| {
            serde_json::json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
                "spec": {"controllerName": "varnish-software.com/gateway", "parametersRef": parameters}})
        };
        let gateway = |name: &str, class: &str, infrastructure: &serde_json::Value| {
            serde_json::json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": name, "namespace": "n"}, "spec": {"gatewayClassName": class,
                "infrastructure": infrastructure, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
        };
        let none = serde_json::Value::Null;
        let objects = [
            class("with", &parameters),
            class("without", &none),
            gateway("by-class", "with", &none),
            gateway("own", "without", &serde_json::json!({"parametersRef": parameters})),
            gateway("other", "without", &none),
        ];
        let snapshot = source::kubernetes::snapshot_of(&objects);
        let mut statuses = translate::translate(&snapshot).statuses;
        ignored_parameters(&Key::cluster("p"), &["spec.pathz".to_owned()], &snapshot, &mut statuses);
        let told = |conditions: &[Condition]| {
            let of = conditions.iter().find(|condition| condition.kind == UNSUPPORTED_FIELDS);
            of.map(|condition| condition.message.clone())
        };
        let gateways = ["by-class", "own", "other"]
            .map(|name| told(&statuses.gateways[&Key::new("n", name)].conditions));
        let message =
            Some("Not supported yet, and without effect: spec.pathz of GatewayClassParameters p".to_owned());
        assert_eq!(gateways, [message.clone(), message.clone(), None]);
        let classes =
            ["with", "without"].map(|name| told(&statuses.gateway_classes[&Key::cluster(name)].conditions));
        assert_eq!(classes, [message, None]);
    }

    /// What does not enter [`workload::Options`] cannot enter the pod template.
    #[test]
    fn settings_of_the_operator_itself_roll_no_pods() {
        let with = |changed: &[(&str, &str)]| {
            let get = |name: &str| {
                let all = changed.iter().chain(&[("GATEWAY_IMAGE", "gateway-chaperone:1")]);
                all.into_iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            options(&Settings::from_variables(get).unwrap())
        };
        let first = with(&[]);
        for change in [
            ("LOG_LEVEL", "debug"),
            ("POD_NAME", "another"),
            ("POD_NAMESPACE", "another"),
            ("LEASE_NAME", "another"),
            ("HEALTH_ADDR", ":1"),
            ("METRICS_ADDR", ":2"),
            ("INGRESS_CLASS", "another"),
            ("INGRESS_CONTROLLER_NAME", "example.com/another"),
        ] {
            assert_eq!(with(&[change]), first, "{change:?}");
        }
        assert_ne!(with(&[("CHAPERONE_LOG_LEVEL", "debug")]), first);
    }

    #[test]
    fn one_whose_last_good_version_counts_is_told_that_it_cannot_be_read() {
        let raw = serde_json::json!({});
        let unread = Arc::new(source::kubernetes::Unread { why: "unknown variant".to_owned(), raw });
        let good = |kind: &str| Condition::new(kind, true, "Fine", "fine", 7);
        let conditions = vec![good(ACCEPTED), good(RESOLVED_REFS)];
        let parent = ParentStatus { parent_ref: HttpRouteParentRefs::default(), conditions };
        let key = Key::new("ns", "r");
        let mut statuses = Statuses::default();
        statuses.tls_routes.insert(key.clone(), RouteStatus { parents: vec![parent] });
        unreadable(
            &[Unreadable { kind: "TLSRoute", key: key.clone(), unread, is_kept: true }],
            &mut statuses,
        );
        let conditions = &statuses.tls_routes[&key].parents[0].conditions;
        assert!(!conditions[0].status && conditions[0].message.contains("unknown variant"), "{conditions:?}");
        assert_eq!(conditions[0].observed_generation, 7);
        assert!(conditions[1].status);
    }
}
