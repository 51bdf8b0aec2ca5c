//! The examples that the project was described with, of version 2, are read and mean what they say.
#![allow(clippy::unwrap_used)]

use model::routing::{Backend, Route, Routing, Vhost};
use model::{VERSION, ghost};
use serde_json::{Value, json};

const ROUTING: &str = r#"{
  "version": 2,
  "vhosts": {
    "api.example.com": {
      "routes": [
        {
          "hostname": "api.example.com",
          "path_match": {"type": "PathPrefix", "value": "/v2"},
          "service": "api-v2",
          "namespace": "default",
          "port": 8080,
          "weight": 100,
          "listeners": ["http-80"],
          "route_name": "default/api-v2-route",
          "priority": 10300,
          "rule_index": 0
        }
      ]
    }
  }
}"#;

const GHOST: &str = r#"{
  "version": 2,
  "vhosts": {
    "api.example.com": {
      "routes": [
        {
          "path_match": {"type": "PathPrefix", "value": "/v2"},
          "backend_groups": [
            {
              "weight": 100,
              "backends": [
                {"address": "10.0.0.1", "port": 8080},
                {"address": "10.0.0.2", "port": 8080}
              ]
            }
          ],
          "listeners": ["http-80"],
          "route_name": "default/api-v2-route",
          "priority": 10300,
          "rule_index": 0
        }
      ]
    }
  }
}"#;

#[test]
fn routing_json_of_version_2_is_read_and_written_in_the_present_form() {
    let read = Routing::read(ROUTING.as_bytes()).unwrap();
    let present = json!({"version": VERSION, "vhosts": {"api.example.com": {"routes": [{
        "hostname": "api.example.com",
        "path_match": {"type": "PathPrefix", "value": "/v2"},
        "backends": [{"service": "api-v2", "namespace": "default", "port": 8080, "weight": 100}],
        "listeners": ["http-80"],
        "route_name": "default/api-v2-route",
        "rule_index": 0,
    }]}}});
    assert_eq!(serde_json::to_value(&read).unwrap(), present);
    assert_eq!(Routing::read(present.to_string().as_bytes()).unwrap(), read);
    assert_eq!(Routing::from_json(serde_json::from_str(ROUTING).unwrap()).unwrap(), read);
}

#[test]
fn ghost_json_of_version_2_is_read() {
    let read: ghost::Config = serde_json::from_str(GHOST).unwrap();
    let groups = json!([{
        "weight": 100,
        "endpoints": [{"address": "10.0.0.1", "port": 8080}, {"address": "10.0.0.2", "port": 8080}],
    }]);
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written["vhosts"]["api.example.com"]["routes"][0]["backends"], groups);
    assert_eq!(serde_json::from_value::<ghost::Config>(written).unwrap(), read);
}

/// A route of the rule with this index.
fn route<const N: usize>(rule_index: u32, backends: [Backend; N]) -> Route {
    Route { route_name: "shop/cart".into(), rule_index, backends: backends.into(), ..Route::default() }
}

fn read(version: u32, routes: &Value) -> Routing {
    let file = json!({"version": version, "vhosts": {"a": {"routes": routes}}});
    Routing::read(file.to_string().as_bytes()).unwrap()
}

#[test]
fn neighbours_of_version_2_that_differ_in_their_backend_alone_are_one_route() {
    let entry = |rule: u32, more: Value| {
        let mut entry = json!({"route_name": "shop/cart", "rule_index": rule});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let mirror = json!({"service": "copy", "namespace": "shop"});
    let redirect = json!({"request_redirect": {"status_code": 301}});
    let modifier = json!({"request_header_modifier": {"set": [{"name": "a", "value": "b"}]}});
    let routing = read(
        2,
        &json!([
            entry(
                0,
                json!({"service": "one", "namespace": "shop", "port": 80, "port_name": "http", "weight": 9})
            ),
            // What has its default may stand there, and the priority tells nothing apart.
            entry(
                0,
                json!({"service": "two", "protocol": "http2", "headers": [], "method": null, "priority": 7})
            ),
            // A reference that is not valid.
            entry(0, json!({"weight": 3})),
            entry(
                1,
                json!({"service": "one", "backend_tls": "profile", "backend_mirrors": [mirror],
                "backend_filters": modifier, "balancing": "round_robin"})
            ),
            entry(2, json!({})),
            entry(3, json!({"filters": redirect})),
            entry(0, json!({"service": "one"})),
        ]),
    );
    let of = |name: &str| Backend { service: Some(name.into()), ..Backend::default() };
    let present = json!([
        entry(
            0,
            json!({"backends": [
                {"service": "one", "namespace": "shop", "port": 80, "port_name": "http", "weight": 9},
                {"service": "two", "protocol": "http2"},
                {"weight": 3},
            ]})
        ),
        entry(
            1,
            json!({"backends": [{"service": "one", "backend_tls": "profile", "mirrors": [mirror],
            "filters": modifier, "balancing": "round_robin"}]})
        ),
        entry(2, json!({})),
        entry(3, json!({"filters": redirect})),
        entry(0, json!({"backends": [{"service": "one"}]})),
    ]);
    assert_eq!(routing, read(VERSION, &present));
    let routes = &routing.vhosts["a"].routes;
    assert_eq!(
        routes[0].backends[1..],
        [
            Backend { protocol: model::Protocol::Http2, ..of("two") },
            Backend { weight: Some(3), ..Backend::default() }
        ]
    );
    assert_eq!(routes[2], route(2, []));
    assert_eq!(routes[4], route(0, [of("one")]));
    // Those of the present version stay what they are.
    let twice =
        json!([entry(0, json!({"backends": [{"service": "one"}]})), entry(0, json!({"backends": []}))]);
    assert_eq!(read(VERSION, &twice).vhosts["a"].routes, [route(0, [of("one")]), route(0, [])]);
}

#[test]
fn defaults_of_version_2_have_their_backends_too() {
    let entry = json!({"route_name": "shop/cart", "rule_index": 0, "service": "one", "priority": 1});
    let file =
        json!({"vhosts": {"a": {"routes": [], "default_route": entry}}, "default": entry, "version": 2});
    let read = Routing::read(file.to_string().as_bytes()).unwrap();
    let expected = Some(route(0, [Backend { service: Some("one".into()), ..Backend::default() }]));
    assert_eq!(read.default, expected);
    assert_eq!(read.vhosts["a"], Vhost { default_route: expected, ..Vhost::default() });
}

#[test]
fn other_versions_are_refused_whatever_the_rest_is() {
    for text in [r#"{"version":4,"vhosts":[]}"#, r#"{"vhosts": 7, "version": 4}"#] {
        let why = Routing::read(text.as_bytes()).unwrap_err().to_string();
        assert!(why.starts_with("routing.json has version 4, but this build reads versions 2 to 3"), "{why}");
    }
    assert!(Routing::read(br#"{"version":1,"vhosts":{}}"#).is_err());
    // One that forgets to ask for the version gets no routes without backends.
    let why = serde_json::from_str::<Routing>(ROUTING).unwrap_err().to_string();
    assert!(why.contains("version 2"), "{why}");
    // What is no JSON, or no list of routes, is an error of JSON.
    for text in ["", "[]", r#"{"version":2,"vhosts":{"a":{"routes":[7]}}}"#, r#"{"version":2,"vhosts":["#] {
        assert!(Routing::read(text.as_bytes()).is_err(), "{text}");
    }
}
