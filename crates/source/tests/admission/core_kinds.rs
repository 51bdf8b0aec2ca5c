//! Services, EndpointSlices, Secrets, ConfigMaps, Namespaces, and what all objects share.

use crate::support::{admitted, object, refused};
use serde_json::json;
use source::files::{Severity, parse_str};
use translate::snapshot::Key;

fn thing() -> Key {
    Key::new("default", "thing")
}

#[test]
fn services_get_their_defaults() {
    let snapshot = admitted(&object(
        "v1",
        "Service",
        "spec: {ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: http, protocol: UDP}]}",
    ));
    let spec = serde_json::to_value(&snapshot.services[&thing()].spec).unwrap();
    assert_eq!(
        spec,
        json!({
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ports": [
                {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80},
                {"name": "b", "port": 81, "protocol": "UDP", "targetPort": "http"},
            ],
        })
    );
}

#[test]
fn services_have_distinct_ports() {
    admitted(&object("v1", "Service", "spec: {clusterIP: None}"));
    admitted(&object("v1", "Service", "spec: {type: ExternalName, externalName: a.example}"));
    let cases = [
        ("", "spec is missing; name at least one port in spec.ports"),
        ("spec: {}", "spec.ports must not be empty; name the port that clients ask for"),
        ("spec: {ports: [{port: 0}]}", "spec.ports[0].port 0 must be between 1 and 65535"),
        (
            "spec: {ports: [{port: 80}, {name: b, port: 81}]}",
            "spec.ports[0].name is missing; with several ports each needs a name",
        ),
        (
            "spec: {ports: [{name: a, port: 80}, {name: a, port: 81}]}",
            "spec.ports[1].name \"a\" is there twice; each port needs its own name",
        ),
        (
            "spec: {ports: [{name: a, port: 80}, {name: b, port: 80}]}",
            "spec.ports[1].port 80 is there twice for one protocol",
        ),
        (
            "spec: {ports: [{port: 80, targetPort: 70000}]}",
            "spec.ports[0].targetPort 70000 must be between 1 and 65535",
        ),
        (
            "spec: {ports: [{port: 80, protocol: tcp}]}",
            "spec.ports[0].protocol \"tcp\" must be one of TCP, UDP, SCTP (did you mean TCP?)",
        ),
        ("spec: {type: ExternalName}", "spec.externalName must be a DNS name, as the type is ExternalName"),
    ];
    for (rest, message) in cases {
        assert_eq!(refused(&object("v1", "Service", rest)), message);
    }
}

#[test]
fn endpoint_slices_may_name_loopback_addresses() {
    let slice = |rest: &str| object("discovery.k8s.io/v1", "EndpointSlice", rest);
    let snapshot =
        admitted(&slice("addressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]\nports: [{port: 8080}]"));
    let ports = serde_json::to_value(&snapshot.endpoint_slices[&thing()].ports).unwrap();
    assert_eq!(ports, json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    admitted(&slice("addressType: IPv6\nendpoints: [{addresses: ['::1']}]"));
    let cases = [
        ("endpoints: []", "addressType is missing; it is required"),
        (
            "addressType: IPv4\nendpoints: [{addresses: [a.example]}]",
            "endpoints[0].addresses[0] \"a.example\" must be an IPv4 address, as addressType is IPv4",
        ),
        (
            "addressType: IPv6\nendpoints: [{addresses: [127.0.0.1]}]",
            "endpoints[0].addresses[0] \"127.0.0.1\" must be an IPv6 address, as addressType is IPv6",
        ),
        ("addressType: IPv4\nendpoints: [{addresses: []}]", "endpoints[0].addresses must not be empty"),
        (
            "addressType: IPv4\nendpoints: []\nports: [{port: 1}, {port: 2}]",
            "ports[1].name \"\" is there twice; each port needs its own name",
        ),
        ("addressType: IP\nendpoints: []", "addressType \"IP\" must be one of IPv4, IPv6, FQDN"),
    ];
    for (rest, message) in cases {
        assert_eq!(refused(&slice(rest)), message);
    }
}

#[test]
fn string_data_is_merged_into_the_data_of_a_secret() {
    let snapshot =
        admitted(&object("v1", "Secret", "data: {a: YQ==, b: Yg==}\nstringData: {b: plain, c: ''}"));
    let secret = &snapshot.secrets[&thing()];
    let data: Vec<_> =
        secret.data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice())).collect();
    assert_eq!(data, [("a", b"a".as_slice()), ("b", b"plain"), ("c", b"")]);
    assert_eq!(secret.string_data, None);
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
}

#[test]
fn base64_may_be_folded_into_lines() {
    let snapshot = admitted(&object("v1", "Secret", "data:\n  a: |\n    aGVs\n    bG8=\n"));
    let secret = &snapshot.secrets[&thing()];
    assert_eq!(secret.data.as_ref().unwrap()["a"].0, b"hello");
}

#[test]
fn the_content_of_a_secret_is_never_shown() {
    let cases = [
        ("data: {a: hunter2!}", "data.a is not base64; encode it with `base64 -w0`, or use stringData"),
        ("data: {a: [hunter2]}", "data.a must be a string, not a list"),
        ("stringData: {a: 123456}", "stringData.a must be a string, not a number; put quotes round it"),
        (
            "data: {tls.crt: hunter2!}",
            "data[\"tls.crt\"] is not base64; encode it with `base64 -w0`, or use stringData",
        ),
        // Valid alphabet, but bits left over: only the decoder notices.
        ("data: {a: hunter2=}", "a value has the wrong form (not shown, as this is a Secret)"),
        ("type: {hunter2: 1}", "type must be a string, not a mapping"),
        (
            "type: kubernetes.io/tls\ndata: {tls.key: aHVudGVyMg==}",
            "data has no \"tls.crt\", which a Secret of the type kubernetes.io/tls needs",
        ),
    ];
    for (rest, message) in cases {
        assert_eq!(refused(&object("v1", "Secret", rest)), message);
    }
}

#[test]
fn keys_of_config_maps_are_file_names_and_sizes_are_limited() {
    admitted(&object("v1", "ConfigMap", "data: {user.vcl: 'sub vcl_recv {}'}\nbinaryData: {x: AAAA}"));
    let message = refused(&object("v1", "ConfigMap", "data: {a/b: x}"));
    assert_eq!(
        message,
        "data has the key \"a/b\", which must be a file name of letters, digits, `-`, `_` and `.`"
    );
    let message = refused(&object("v1", "ConfigMap", "data: {a: x}\nbinaryData: {a: AAAA}"));
    assert_eq!(message, "binaryData has the key \"a\", which data has too; keep one");
    let message =
        refused(&object("v1", "ConfigMap", &format!("data: {{a: {}}}", "x".repeat(1024 * 1024 + 1))));
    assert_eq!(message, "data has 1048577 bytes; at most 1048576 are allowed");
}

#[test]
fn metadata_is_checked_and_completed() {
    let snapshot = admitted("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod}}");
    let namespace = &snapshot.namespaces[&Key::cluster("shop")];
    assert_eq!(namespace.metadata.generation, Some(1));
    assert_eq!(namespace.metadata.namespace, None);
    let cases = [
        ("{name: Shop}", "metadata.name \"Shop\" must be a name of at most 63"),
        ("{name: a.b}", "metadata.name \"a.b\" must be a name of at most 63"),
        ("{}", "metadata.name is missing; give it one"),
        ("{generateName: a-}", "metadata.name is missing, and generateName needs an API server"),
        ("{name: a, labels: {'a b': c}}", "metadata.labels has the key \"a b\", which must be"),
        ("{name: a, labels: {a: '-'}}", "metadata.labels.a \"-\" must be at most 63"),
        ("{name: a, lables: {}}", "metadata.lables is an unknown field (did you mean `labels`?)"),
        (
            "{name: a, creationTimestamp: yesterday}",
            "metadata.creationTimestamp \"yesterday\" must be a time such as",
        ),
    ];
    for (metadata, beginning) in cases {
        let message = refused(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {metadata}"));
        assert!(message.starts_with(beginning), "{message}");
    }
}

#[test]
fn what_kubectl_get_prints_can_be_read_back() {
    let snapshot = admitted(
        "
apiVersion: v1
kind: List
metadata: {resourceVersion: ''}
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: a
    namespace: shop
    creationTimestamp: '2024-05-06T07:08:09Z'
    generation: 7
    resourceVersion: '123'
    uid: 0e8a1a4c-98b1-4b8e-a3a5-7ef0a6f5b7c0
    managedFields: [{manager: kubectl, fieldsV1: {'f:data': {}}}]
- apiVersion: v1
  kind: Service
  metadata: {name: b, creationTimestamp: null}
  spec: {ports: [{port: 80}]}
  status: {loadBalancer: {}}
",
    );
    let metadata = &snapshot.config_maps[&Key::new("shop", "a")].metadata;
    assert_eq!(metadata.generation, Some(7));
    assert_eq!(metadata.creation_timestamp.as_ref().unwrap().0.to_string(), "2024-05-06T07:08:09Z");
    assert_eq!(snapshot.services.len(), 1);
}

#[test]
fn the_items_of_a_typed_list_may_leave_out_their_kind() {
    let snapshot = admitted(
        "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]",
    );
    assert_eq!(snapshot.config_maps.len(), 2);
}

#[test]
fn other_kinds_are_named_and_skipped() {
    let (snapshot, problems) = parse_str(
        "all.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n---\n\
         apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: web}\n",
    );
    assert_eq!(snapshot.config_maps.len(), 1);
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "Deployment shop/web in all.yaml, document 1: the kind Deployment of apps/v1 is not read; skipped",
            "Gateway web in all.yaml, document 3: the kind Gateway of networking.istio.io/v1 is not read; skipped (the \
             Gateway that is read has the apiVersion `gateway.networking.k8s.io/v1` or \
             `gateway.networking.k8s.io/v1beta1`)",
        ]
    );
    assert!(problems.iter().all(|problem| problem.severity == Severity::Warning));
}

#[test]
fn a_known_kind_of_another_version_is_an_error_that_says_which_is_read() {
    let manifest = object("gateway.networking.k8s.io/v1alpha2", "HTTPRoute", "spec: {}");
    assert_eq!(
        refused(&manifest),
        "apiVersion `gateway.networking.k8s.io/v1alpha2` is not read for a HTTPRoute; write \
         `gateway.networking.k8s.io/v1` or `gateway.networking.k8s.io/v1beta1`"
    );
    assert!(
        refused(&object("v1", "Gateway", "")).starts_with("apiVersion `v1` is not read for a Gateway; write")
    );
    assert_eq!(refused("kind: Service"), "apiVersion is missing; every object needs apiVersion and kind");
    assert_eq!(
        refused("just words"),
        "this is no Kubernetes object; begin it with `apiVersion:` and `kind:`"
    );
    assert_eq!(refused("[1, 2]"), "this is no Kubernetes object; begin it with `apiVersion:` and `kind:`");
}
