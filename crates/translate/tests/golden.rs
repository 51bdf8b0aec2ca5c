//! `golden/<resource>-<situation>.in.yaml` holds manifests; the `.out.snap` beside it, all that `translate` and
//! `resolve` make of them. `make bless` writes the latter again: read the difference as if it were code.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::collections::BTreeMap;
use std::path::Path;

use api::AncestorRef;
use model::ghost;
use resolve::EndpointIndex;
use serde::Serialize;
use translate::status::{ACCEPTED, Condition, ListenerStatus, ParentStatus, RouteStatus};
use translate::{GatewayPlan, Infra, Notice, Snapshot, Translation};

#[test]
fn every_case_gives_what_its_snapshot_says() {
    insta::glob!("golden/*.in.yaml", |path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        let case = name.strip_suffix(".in.yaml").unwrap();
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("golden");
        settings.set_prepend_module_to_snapshot(false);
        settings.remove_snapshot_suffix();
        settings.remove_input_file();
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(format!("{case}.out"), output(path)));
    });
}

#[test]
fn the_same_snapshot_gives_the_same_bytes() {
    insta::glob!("golden/*.in.yaml", |path| {
        let bytes = || serde_json::to_string(&translate::translate(&read(path))).unwrap();
        assert_eq!(bytes(), bytes());
    });
}

#[test]
fn the_router_takes_all_that_comes_out() {
    insta::glob!("golden/*.in.yaml", |path| {
        let snapshot = read(path);
        let index = EndpointIndex::new(snapshot.endpoint_slices.values().map(AsRef::as_ref));
        for plan in translate::translate(&snapshot).gateways.values() {
            let compiled = router::Router::compile(&resolve::resolve(&plan.routing, &index).0).unwrap();
            assert_eq!(compiled.problems, []);
        }
    });
}

#[test]
fn secrets_that_are_not_referred_to_make_no_difference() {
    let (mut left_out, mut kept) = (0, 0);
    insta::glob!("golden/*.in.yaml", |path| {
        let all = read(path);
        let referenced = translate::referenced_secrets(&all);
        let mut few = all.clone();
        // Those with CA certificates may be of any type, and are read by name.
        few.secrets.retain(|key, secret| {
            referenced.contains(key) || secret.type_.as_deref() != Some("kubernetes.io/tls")
        });
        left_out += all.secrets.len() - few.secrets.len();
        kept += few.secrets.len();
        let bytes = |snapshot| serde_json::to_string(&translate::translate(snapshot)).unwrap();
        assert_eq!(bytes(&few), bytes(&all));
    });
    assert!(left_out > 0 && kept > left_out, "{left_out} left out, {kept} kept");
}

#[test]
fn every_snapshot_belongs_to_a_case() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in std::fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(case) = name.strip_suffix(".out.snap") {
            assert!(
                directory.join(format!("{case}.in.yaml")).exists(),
                "{name} is of a case that is gone: remove it"
            );
        }
    }
}

/// The objects of a case, admitted as those of a user's file are. A case is about what `translate` decides, so
/// admission has nothing to say about it.
fn read(path: &Path) -> Snapshot {
    let text = std::fs::read_to_string(path).unwrap();
    let (snapshot, problems) = source::files::parse_str(&path.display().to_string(), &text);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    snapshot
}

fn output(path: &Path) -> String {
    let snapshot = read(path);
    let translation = translate::translate(&snapshot);
    let mut yaml = serde_saphyr::to_string(&Output::new(&snapshot, &translation)).unwrap();
    for (key, plan) in &translation.gateways {
        if let Some(vcl) = plan.main_vcl.as_ref().filter(|_| !snapshot.config_maps.is_empty()) {
            yaml.push_str(&format!("--- # main.vcl of Gateway {key}\n{vcl}"));
        }
    }
    yaml
}

/// The translation, short enough to be read.
#[derive(Serialize)]
struct Output {
    statuses: BTreeMap<String, Status>,
    notices: Vec<String>,
    gateways: BTreeMap<String, Plan>,
}

#[derive(Serialize)]
struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    listeners: BTreeMap<String, Listener>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parents: Vec<Parent>,
}

#[derive(Serialize)]
struct Listener {
    attached_routes: i32,
    supported_kinds: Vec<String>,
    /// Where it is accepted and yet not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    served: Option<bool>,
    conditions: Vec<String>,
}

#[derive(Serialize)]
struct Parent {
    parent_ref: String,
    conditions: Vec<String>,
}

#[derive(Serialize)]
struct Plan {
    infra: Option<Infra>,
    main_vcl: &'static str,
    routing: model::routing::Routing,
    /// Without what anybody could use: a hash of each chain.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    certificates: BTreeMap<String, certificate::Pem>,
    /// Of ghost.json: by host, each route with its groups.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    groups: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

impl Output {
    fn new(snapshot: &Snapshot, translation: &Translation) -> Self {
        let statuses = &translation.statuses;
        let classes = statuses.gateway_classes.iter().map(|(key, status)| {
            (format!("GatewayClass {key}"), Status::new(&status.conditions, &[], &RouteStatus::default()))
        });
        let gateways = statuses.gateways.iter().map(|(key, status)| {
            let status = Status::new(&status.conditions, &status.listeners, &RouteStatus::default());
            (format!("Gateway {key}"), status)
        });
        let sets = statuses.listener_sets.iter().map(|(key, status)| {
            let status = Status::new(&status.conditions, &status.listeners, &RouteStatus::default());
            (format!("ListenerSet {key}"), status)
        });
        let routes = statuses.routes().flat_map(|(kind, all)| {
            all.iter().map(move |(key, status)| (format!("{kind} {key}"), Status::new(&[], &[], status)))
        });
        let cache = statuses.cache_policies.iter().map(|(key, status)| ("VarnishCachePolicy", key, status));
        let backend_tls =
            statuses.backend_tls_policies.iter().map(|(key, status)| ("BackendTLSPolicy", key, status));
        let policies = cache.chain(backend_tls).map(|(kind, key, status)| {
            let told = status.ancestors.iter().map(|ancestor| Parent {
                parent_ref: {
                    let AncestorRef { kind, namespace, name, section_name, .. } = &ancestor.ancestor_ref;
                    let kind = kind.as_deref().unwrap_or_default();
                    let section = section_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                    format!("{kind} {}/{name}{section}", namespace.as_deref().unwrap_or_default())
                },
                conditions: conditions(&ancestor.conditions),
            });
            let status = Status { conditions: vec![], listeners: BTreeMap::new(), parents: told.collect() };
            (format!("{kind} {key}"), status)
        });
        let ingresses = statuses.ingresses.iter().map(|(key, status)| {
            let own = Status::new(&status.conditions, &[], &RouteStatus::default());
            (format!("Ingress {key}"), own)
        });
        let ingress_classes = statuses.ingress_classes.iter().map(|(key, status)| {
            let own = Status::new(&status.conditions, &[], &RouteStatus::default());
            (format!("IngressClass {key}"), own)
        });
        Self {
            statuses: classes
                .chain(gateways)
                .chain(sets)
                .chain(routes)
                .chain(ingresses)
                .chain(ingress_classes)
                .chain(policies)
                .collect(),
            notices: notices(&translation.notices),
            gateways: translation
                .gateways
                .iter()
                .map(|(key, plan)| (key.to_string(), Plan::new(snapshot, plan)))
                .collect(),
        }
    }
}

impl Status {
    fn new(own: &[Condition], listeners: &[ListenerStatus], route: &RouteStatus) -> Self {
        let listener = |status: &ListenerStatus| Listener {
            attached_routes: status.attached_routes,
            supported_kinds: status.supported_kinds.iter().map(|kind| kind.kind.clone()).collect(),
            served: (!status.served && status.conditions.iter().any(|c| c.kind == ACCEPTED && c.status))
                .then_some(false),
            conditions: conditions(&status.conditions),
        };
        let parent = |status: &ParentStatus| Parent {
            // Without what admission adds to every one of them.
            parent_ref: serde_json::to_string(&status.parent_ref)
                .unwrap()
                .replace('"', "")
                .replace("group:gateway.networking.k8s.io,kind:Gateway,", ""),
            conditions: conditions(&status.conditions),
        };
        Self {
            conditions: conditions(own),
            listeners: listeners.iter().map(|status| (status.name.clone(), listener(status))).collect(),
            parents: route.parents.iter().map(parent).collect(),
        }
    }
}

impl Plan {
    fn new(snapshot: &Snapshot, plan: &GatewayPlan) -> Self {
        let slices = snapshot.endpoint_slices.values().map(AsRef::as_ref);
        let external = plan.routing.external_names.iter().flat_map(|external| &external.services);
        let external: Vec<_> =
            external.map(|(service, name)| resolve::external_slice(service, name, None)).collect();
        let index = EndpointIndex::new(slices).replacing(&external);
        let (config, found) = resolve::resolve(&plan.routing, &index);
        assert_eq!(config.listeners, plan.routing.listeners);
        let with_endpoints = !snapshot.endpoint_slices.is_empty();
        let groups = config.vhosts.iter().filter(|_| with_endpoints);
        Self {
            infra: plan.infra.clone(),
            main_vcl: match &plan.main_vcl {
                None => "not decided",
                Some(_) if snapshot.config_maps.is_empty() => "generated only",
                Some(_) => "see below",
            },
            routing: plan.routing.clone(),
            certificates: plan.certificates.as_ref().clone(),
            groups: groups
                .map(|(host, vhost)| (host.clone(), vhost.routes.iter().map(group).collect()))
                .collect(),
            notices: notices(&found),
        }
    }
}

fn group(route: &ghost::Route) -> String {
    let path = route.path_match.as_ref().unwrap();
    let mut line = format!("{} rule {} {:?} {}:", route.route_name, route.rule_index, path.kind, path.value);
    if route.backends.is_empty() {
        line.push_str(" no groups");
    }
    for group in &route.backends {
        let endpoints: Vec<String> = group
            .endpoints
            .iter()
            .map(|endpoint| std::net::SocketAddr::new(endpoint.address, endpoint.port).to_string())
            .collect();
        let name = group.name.as_deref().unwrap_or("no service");
        let tls = group.tls.as_ref().map_or_else(String::new, |tls| format!(" tls {tls}"));
        line.push_str(&format!(" {}x {name} [{}]{tls}", group.weight, endpoints.join(" ")));
    }
    line
}

fn conditions(conditions: &[Condition]) -> Vec<String> {
    let one = |condition: &Condition| {
        assert_eq!(condition.observed_generation, 1, "the files give no other generation");
        let status = if condition.status { "True" } else { "False" };
        format!("{}={status} ({}): {}", condition.kind, condition.reason, condition.message)
    };
    conditions.iter().map(one).collect()
}

fn notices(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(|notice| format!("{:?}: {notice}", notice.severity)).collect()
}
