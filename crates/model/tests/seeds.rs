//! The examples that the project was described with parse, and come out as they went in.

use model::matches::{PathMatch, PathMatchType, priority};
use model::{ghost, routing};
use serde_json::Value;

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
fn routing_json_round_trips() {
    let parsed: routing::Routing = serde_json::from_str(ROUTING).unwrap();
    assert_eq!(serde_json::to_value(parsed).unwrap(), serde_json::from_str::<Value>(ROUTING).unwrap());
}

#[test]
fn ghost_json_round_trips() {
    let parsed: ghost::Config = serde_json::from_str(GHOST).unwrap();
    assert_eq!(serde_json::to_value(parsed).unwrap(), serde_json::from_str::<Value>(GHOST).unwrap());
}

#[test]
fn a_path_prefix_of_three_characters_has_priority_10300() {
    let path = PathMatch { kind: PathMatchType::PathPrefix, value: "/v2".into() };
    assert_eq!(priority(&path, None, 0, 0), 10_300);
    let parsed: routing::Routing = serde_json::from_str(ROUTING).unwrap();
    assert_eq!(parsed.vhosts["api.example.com"].routes[0].priority, 10_300);
}
