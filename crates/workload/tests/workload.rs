//! `workload/<situation>.in.yaml` holds manifests; the `.out.snap` beside it, the Kubernetes objects of its Gateways and
//! the problems of their parameters. `make bless` writes the latter again: read the difference as if it were code.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::path::Path;
use std::sync::Arc;

use model::SharedMap;
use model::names::INFRA_HASH_ANNOTATION;
use serde::Serialize;
use translate::{Key, Snapshot, translate};
use workload::{Objects, Options, objects};

#[test]
fn every_case_gives_the_objects_that_its_snapshot_says() {
    insta::glob!("workload/*.in.yaml", |path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        let case = name.strip_suffix(".in.yaml").unwrap();
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("workload");
        settings.set_prepend_module_to_snapshot(false);
        settings.remove_snapshot_suffix();
        settings.remove_input_file();
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(format!("{case}.out"), output(&read(path))));
    });
}

fn read(path: &Path) -> Snapshot {
    read_text(&std::fs::read_to_string(path).unwrap())
}

fn read_text(text: &str) -> Snapshot {
    let (snapshot, problems) = source::files::parse_str("case.yaml", text);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    snapshot
}

fn options() -> Options {
    Options {
        vinyl_image: "example.com/gateway-chaperone-vinyl-9:1".into(),
        image_pull_secrets: vec!["registry".into()],
        log_level: Some("info".into()),
        ..Options::new("example.com/gateway-chaperone:1")
    }
}

#[derive(Serialize)]
struct Output {
    parameters: Vec<String>,
    objects: Option<Objects>,
}

fn output(snapshot: &Snapshot) -> String {
    let translation = translate(snapshot);
    let mut text = String::new();
    for (key, plan) in &translation.gateways {
        let told = translation.statuses.gateways[key].conditions.iter();
        let output = Output {
            parameters: told
                .filter(|condition| condition.kind.contains("Parameters"))
                .map(|condition| format!("{}: {}", condition.reason, condition.message))
                .collect(),
            objects: objects(&snapshot.gateways[key], plan, &options()),
        };
        text.push_str(&format!("--- # Gateway {key}\n{}", serde_saphyr::to_string(&output).unwrap()));
    }
    text
}

const CASE: &str = include_str!("workload/everything.in.yaml");

/// The hash on the pod template of the Gateway in the case, after `change`.
fn hash(change: impl FnOnce(&mut Snapshot, &mut Options)) -> String {
    let mut snapshot = read_text(CASE);
    let mut options = options();
    change(&mut snapshot, &mut options);
    let key = Key::new("infra", "shop");
    let objects = objects(&snapshot.gateways[&key], &translate(&snapshot).gateways[&key], &options).unwrap();
    let template = objects.deployment.spec.unwrap().template;
    template.metadata.unwrap().annotations.unwrap()[INFRA_HASH_ANNOTATION].clone()
}

fn parameters(snapshot: &mut Snapshot) -> &mut api::GatewayClassParametersSpec {
    &mut Arc::make_mut(snapshot.parameters.values_mut().next().unwrap()).spec
}

#[test]
fn nothing_that_changes_live_rolls_pods() {
    let first = hash(|_, _| {});
    assert_eq!(first.len(), 64);
    let same = [
        hash(|snapshot, _| snapshot.http_routes = SharedMap::default()),
        hash(|snapshot, _| parameters(snapshot).replicas = Some(7)),
        hash(|snapshot, _| parameters(snapshot).service = None),
        hash(|snapshot, _| parameters(snapshot).pod_disruption_budget = None),
        hash(|snapshot, _| parameters(snapshot).trusted_proxies = Some(vec!["10.0.0.0/8".into()])),
        hash(|snapshot, _| parameters(snapshot).user_vcl_config_map_ref = None),
        hash(|_, options| options.shards = vec!["shop-vcl-1".into()]),
        hash(|_, options| options.cluster_role = "other".into()),
    ];
    for hash in same {
        assert_eq!(hash, first);
    }
}

#[test]
fn whatever_pods_need_at_their_start_rolls_them() {
    let first = hash(|_, _| {});
    let others = [
        hash(|snapshot, _| parameters(snapshot).image = Some("other".into())),
        hash(|snapshot, _| parameters(snapshot).resources = None),
        hash(|snapshot, _| parameters(snapshot).storage = None),
        hash(|snapshot, _| parameters(snapshot).varnishd_extra_args = None),
        hash(|snapshot, _| parameters(snapshot).logging = None),
        hash(|snapshot, _| parameters(snapshot).timeouts = None),
        hash(|snapshot, _| parameters(snapshot).topology_spread_constraints = None),
        hash(|snapshot, _| parameters(snapshot).extra_volume_mounts = None),
        hash(|snapshot, _| parameters(snapshot).extra_init_containers = None),
        hash(|snapshot, _| parameters(snapshot).node_selector = None),
        hash(|_, options| options.image_pull_secrets.clear()),
        hash(|_, options| options.log_level = None),
        hash(|snapshot, _| {
            let gateway = Arc::make_mut(snapshot.gateways.values_mut().next().unwrap());
            gateway.spec.listeners[0].port = 8080;
        }),
    ];
    for (number, hash) in others.iter().enumerate() {
        assert_ne!(hash, &first, "change {number}");
    }
}

#[test]
fn a_gateway_without_a_valid_listener_gets_no_objects() {
    let mut snapshot = read_text(CASE);
    for gateway in snapshot.gateways.values_mut() {
        for listener in &mut Arc::make_mut(gateway).spec.listeners {
            listener.protocol = "example.com/own".into();
        }
    }
    let key = Key::new("infra", "shop");
    let translation = translate(&snapshot);
    assert_eq!(objects(&snapshot.gateways[&key], &translation.gateways[&key], &options()), None);
}

/// HTTPS is the front's: its sockets open and close while varnishd runs.
#[test]
fn an_https_listener_is_in_the_service_and_rolls_no_pods() {
    let made = |https: bool| {
        let mut snapshot =
            read_text(include_str!("../../translate/tests/golden/gateway-https-and-http.in.yaml"));
        let (key, gateway) = snapshot.gateways.iter_mut().next().unwrap();
        let key = key.clone();
        if !https {
            Arc::make_mut(gateway).spec.listeners.retain(|listener| listener.protocol != "HTTPS");
        }
        objects(&snapshot.gateways[&key], &translate(&snapshot).gateways[&key], &options()).unwrap()
    };
    let (with, without) = (made(true), made(false));
    assert_eq!(with.deployment, without.deployment);
    let ports = |objects: Objects| -> Vec<String> {
        let ports = objects.service.spec.unwrap().ports.unwrap();
        ports.into_iter().filter_map(|port| port.name).collect()
    };
    assert!(ports(without).iter().all(|name| name.starts_with("http-")));
    assert!(ports(with).iter().any(|name| name == "https-443"));
}

/// Every port is the front's: listeners come, go and change their numbers while pods run.
#[test]
fn no_listener_rolls_pods_where_the_front_owns_all_ports() {
    let made = |change: &dyn Fn(&mut Vec<gateway_api::gateways::GatewayListeners>)| {
        let mut snapshot = read_text(include_str!("workload/front.in.yaml"));
        let (key, gateway) = snapshot.gateways.iter_mut().next().unwrap();
        let key = key.clone();
        change(&mut Arc::make_mut(gateway).spec.listeners);
        objects(&snapshot.gateways[&key], &translate(&snapshot).gateways[&key], &options()).unwrap()
    };
    let ports = |objects: &Objects| -> Vec<i32> {
        objects
            .service
            .spec
            .iter()
            .flat_map(|spec| spec.ports.iter().flatten())
            .map(|port| port.port)
            .collect()
    };
    let first = made(&|_| {});
    assert_eq!(ports(&first), [80, 8080]);
    let fewer = made(&|listeners| listeners.truncate(1));
    assert_eq!((ports(&fewer), &fewer.deployment), (vec![80], &first.deployment));
    let renumbered = made(&|listeners| listeners[2].port = 9999);
    assert_eq!((ports(&renumbered), &renumbered.deployment), (vec![80, 9999], &first.deployment));
    let more = made(&|listeners| {
        for port in 10_000..10_050 {
            let name = format!("more-{port}");
            listeners.push(gateway_api::gateways::GatewayListeners { name, port, ..listeners[0].clone() });
        }
    });
    assert_eq!((ports(&more).len(), &more.deployment), (52, &first.deployment));
}

#[test]
fn the_other_arrangement_rolls_pods() {
    let made = |data_path, default_data_path| {
        let mut snapshot = read_text(include_str!("workload/front.in.yaml"));
        parameters(&mut snapshot).data_path = data_path;
        snapshot.default_data_path = default_data_path;
        let key = Key::new("infra", "shop");
        objects(&snapshot.gateways[&key], &translate(&snapshot).gateways[&key], &options()).unwrap()
    };
    let (auto, varnish) = (Some(api::DataPath::Auto), Some(api::DataPath::Varnish));
    assert_ne!(made(auto, None).deployment, made(varnish, None).deployment);
    assert_eq!(made(auto, None).service, made(varnish, None).service);
    // What parameters choose goes before the default.
    assert_eq!(made(None, None), made(auto, varnish));
    assert_eq!(made(None, varnish).deployment, made(varnish, auto).deployment);
}

/// Two files of each kind are there at most: the old one goes once the new one is served.
#[test]
fn the_work_directory_has_room_for_the_copies_of_twenty_thousand_routes() {
    const ROUTES: usize = 100;
    let mut text = CASE.to_owned();
    for number in 0..ROUTES {
        let endpoints: Vec<String> =
            (0..20).map(|at| format!("{{addresses: [10.{number}.0.{at}]}}")).collect();
        text.push_str(&format!(
            r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: many-{number}, namespace: infra}}
spec:
  parentRefs: [{{name: shop}}]
  hostnames: [many-{number}.shop.example.com]
  rules:
    - matches: [{{path: {{type: PathPrefix, value: /api}}, headers: [{{name: X-Version, value: two}}]}}]
      filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: X-Shop, value: many}}]}}}}]
      backendRefs: [{{name: many-{number}, port: 80}}]
    - backendRefs: [{{name: many-{number}, port: 80}}]
---
apiVersion: v1
kind: Service
metadata: {{name: many-{number}, namespace: infra}}
spec: {{ports: [{{name: web, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: many-{number}, namespace: infra, labels: {{kubernetes.io/service-name: many-{number}}}}}
addressType: IPv4
ports: [{{name: web, port: 8080}}]
endpoints: [{}]"#,
            endpoints.join(", ")
        ));
    }
    let snapshot = read_text(&text);
    let key = Key::new("infra", "shop");
    let plan = &translate(&snapshot).gateways[&key];
    let index = resolve::EndpointIndex::new(snapshot.endpoint_slices.values().map(AsRef::as_ref));
    let ghost = serde_json::to_string(&resolve::resolve(&plan.routing, &index).0).unwrap();
    assert!(ghost.contains("10.99.0.19"), "{ghost}");
    let pod = objects(&snapshot.gateways[&key], plan, &options()).unwrap().deployment.spec.unwrap();
    let volumes = pod.template.spec.unwrap().volumes.unwrap();
    let work = volumes.into_iter().find(|volume| volume.name == "gateway-work").unwrap().empty_dir.unwrap();
    let limit = work.size_limit.unwrap().0;
    let limit: usize = limit.strip_suffix("Mi").unwrap().parse::<usize>().unwrap() << 20;
    // ghost reads one file and the chaperone keeps another, and each is written beside the one before it. routing.json is smaller
    // than ghost.json. varnishd's log takes 80 MiB, and its counters some.
    let needed = (128 << 20) + 4 * (ghost.len() / ROUTES) * 20_000;
    assert!(needed < limit, "{needed} bytes are needed, the limit is {limit}");
}

/// What pods need to tell each other of writes (ADR 87): a Service whose EndpointSlices name them, the right to read these, a port that
/// takes messages, and a secret to sign them with. In every case, whatever its parameters say.
#[test]
fn pods_can_find_and_tell_each_other() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workload");
    let mut cases = 0;
    for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if !path.to_string_lossy().ends_with(".in.yaml") {
            continue;
        }
        let snapshot = read(&path);
        let translation = translate(&snapshot);
        for (key, plan) in &translation.gateways {
            let Some(objects) = objects(&snapshot.gateways[key], plan, &options()) else { continue };
            let all = serde_json::to_value(&objects).unwrap();
            // Chaperones look for EndpointSlices of a Service with the Gateway's name.
            let service = &all["service"];
            assert_eq!(service["metadata"]["name"], key.name, "{path:?}");
            let labels = &service["spec"]["selector"];
            let pod = &all["deployment"]["spec"]["template"];
            for (name, value) in labels.as_object().unwrap() {
                assert_eq!(&pod["metadata"]["labels"][name], value, "{path:?}");
            }
            let rules = all["role"]["rules"].as_array().unwrap().clone();
            let may_read = |rule: &serde_json::Value| {
                let has = |list: &str, word: &str| {
                    rule[list].as_array().is_some_and(|all| all.iter().any(|one| one == word))
                };
                has("resources", "endpointslices")
                    && ["get", "list", "watch"].iter().all(|verb| has("verbs", verb))
            };
            assert!(rules.iter().any(may_read), "{path:?}: {rules:?}");
            let chaperone = &pod["spec"]["containers"][0];
            let variable = |name: &str| {
                let all = chaperone["env"].as_array().unwrap();
                all.iter()
                    .find(|one| one["name"] == name)
                    .and_then(|one| one["value"].as_str())
                    .unwrap_or_default()
                    .to_owned()
            };
            let health: u64 = variable("HEALTH_ADDR").trim_start_matches(':').parse().unwrap();
            let ports = chaperone["ports"].as_array().unwrap();
            assert!(ports.iter().any(|port| port["containerPort"] == health), "{path:?}");
            let secret = variable("VARNISH_SECRET_PATH");
            let mounts = chaperone["volumeMounts"].as_array().unwrap();
            let mounted = |one: &serde_json::Value| secret.starts_with(one["mountPath"].as_str().unwrap());
            assert!(!secret.is_empty() && mounts.iter().any(mounted), "{path:?}: {secret}");
            cases += 1;
        }
    }
    assert!(cases > 5, "{cases}");
}
