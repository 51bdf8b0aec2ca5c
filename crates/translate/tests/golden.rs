//! `golden/<resource>-<situation>.in.yaml` holds manifests; the `.out.snap` beside it, all that `translate` and
//! `resolve` make of them. `make bless` writes the latter anew: read the difference as if it were code.

use std::collections::BTreeMap;
use std::path::Path;

use model::ghost;
use serde::Serialize;
use translate::status::{Condition, HttpRouteStatus, ListenerStatus, ParentStatus};
use translate::{EndpointIndex, GatewayPlan, Infra, Notice, Snapshot, Translation};

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
        let snapshot = read(path);
        let first = serde_json::to_string(&translate::translate(&snapshot)).unwrap();
        assert_eq!(first, serde_json::to_string(&translate::translate(&snapshot.clone())).unwrap());
    });
}

/// TEMPORARY loader until source::files is there.
fn read(path: &Path) -> Snapshot {
    use std::sync::Arc;
    use translate::Key;
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = Snapshot::default();
    for document in text.split("---\n") {
        let mut value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        let kind = value["kind"].as_str().unwrap().to_owned();
        let cluster = matches!(kind.as_str(), "GatewayClass" | "GatewayClassParameters" | "Namespace");
        let meta = value["metadata"].as_object_mut().unwrap();
        meta.insert("generation".into(), 1.into());
        if !cluster {
            meta.entry("namespace").or_insert("default".into());
        }
        let key = Key::new(
            meta.get("namespace").and_then(|n| n.as_str()).unwrap_or_default(),
            meta["name"].as_str().unwrap(),
        );
        macro_rules! put {
            ($field:ident) => {{
                let object = serde_json::from_value(value).unwrap();
                assert!(all.$field.insert(key, Arc::new(object)).is_none());
            }};
        }
        match kind.as_str() {
            "GatewayClass" => put!(gateway_classes),
            "Gateway" => put!(gateways),
            "HTTPRoute" => put!(http_routes),
            "ReferenceGrant" => put!(reference_grants),
            "GatewayClassParameters" => put!(parameters),
            "Service" => put!(services),
            "EndpointSlice" => put!(endpoint_slices),
            "ConfigMap" => put!(config_maps),
            "Namespace" => put!(namespaces),
            other => panic!("{other}"),
        }
    }
    all
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
            (format!("GatewayClass {key}"), Status::new(&status.conditions, &[], &HttpRouteStatus::default()))
        });
        let gateways = statuses.gateways.iter().map(|(key, status)| {
            let status = Status::new(&status.conditions, &status.listeners, &HttpRouteStatus::default());
            (format!("Gateway {key}"), status)
        });
        let routes = statuses
            .http_routes
            .iter()
            .map(|(key, status)| (format!("HTTPRoute {key}"), Status::new(&[], &[], status)));
        Self {
            statuses: classes.chain(gateways).chain(routes).collect(),
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
    fn new(own: &[Condition], listeners: &[ListenerStatus], route: &HttpRouteStatus) -> Self {
        let listener = |status: &ListenerStatus| Listener {
            attached_routes: status.attached_routes,
            supported_kinds: status.supported_kinds.iter().map(|kind| kind.kind.clone()).collect(),
            conditions: conditions(&status.conditions),
        };
        let parent = |status: &ParentStatus| Parent {
            parent_ref: serde_json::to_string(&status.parent_ref).unwrap().replace('"', ""),
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
        let (config, found) = translate::resolve(&plan.routing, &EndpointIndex::new(slices));
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
    if route.backend_groups.is_empty() {
        line.push_str(" no groups");
    }
    for group in &route.backend_groups {
        let backends: Vec<String> = group
            .backends
            .iter()
            .map(|endpoint| std::net::SocketAddr::new(endpoint.address, endpoint.port).to_string())
            .collect();
        let name = group.name.as_deref().unwrap_or("no service");
        line.push_str(&format!(" {}x {name} [{}]", group.weight, backends.join(" ")));
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
