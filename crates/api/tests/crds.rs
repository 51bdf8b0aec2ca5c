//! deploy/crds holds what the types say (`make bless` writes it), in a form that an API server takes, and
//! docs/reference names every field.

#![allow(clippy::unwrap_used, clippy::panic, reason = "whatever goes wrong here must fail the test")]

use std::path::PathBuf;

use api::crd;
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_committed_definitions_are_those_of_the_types() {
    let folder = root().join("deploy/crds");
    let mut expected = Vec::new();
    for (name, definition) in crd::all() {
        let path = folder.join(format!("{name}.yaml"));
        let made = serde_saphyr::to_string(&definition).unwrap();
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == made, "{} is not what the types say: run `make bless`", path.display());
        expected.push(path);
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(expected.contains(&path), "{} is of no kind of ours: remove it", path.display());
    }
}

#[test]
fn what_is_printed_is_read_back_the_same() {
    let printed: Vec<Value> = serde_saphyr::from_multiple(&crd::yaml().unwrap()).unwrap();
    let made: Vec<Value> = crd::all().into_iter().map(|(_, definition)| definition).collect();
    assert_eq!(printed, made);
}

/// What a structural schema must not have, and what CEL needs.
#[test]
fn the_schemas_are_structural() {
    for (name, definition) in crd::all() {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(name, schema, true);
    }
}

fn walk(path: &str, schema: &Value, typed: bool) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{path} is no schema: {schema}"));
    for forbidden in ["$ref", "definitions", "nullable", "oneOf", "anyOf", "patternProperties", "$schema"] {
        assert!(!object.contains_key(forbidden), "{path} has {forbidden}");
    }
    let int_or_string = object.contains_key("x-kubernetes-int-or-string");
    assert!(!typed || int_or_string || schema["type"].is_string(), "{path} has no type");
    if let Some(rules) = object.get("x-kubernetes-validations") {
        for rule in rules.as_array().unwrap() {
            let message = rule["message"].as_str().unwrap();
            assert!(!message.is_empty() && !message.contains('\n'), "{path}: {rule}");
        }
    }
    if let Some(values) = object.get("enum") {
        assert!(values.as_array().unwrap().iter().all(Value::is_string), "{path}: {values}");
    }
    for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, true);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = object.get(inner) {
            walk(&format!("{path}.{inner}"), schema, true);
        }
    }
}

#[test]
fn the_reference_names_every_field() {
    for (name, definition) in crd::all() {
        let page = root().join(format!("docs/reference/{name}.md"));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            for field in fields(&schema[part]) {
                let word = |c: char| c.is_ascii_alphanumeric();
                let named = text.split(|c| !word(c)).any(|found| found == field);
                assert!(named, "{} does not name the field {field}", page.display());
            }
        }
    }
}

/// The names of all fields, at every depth.
fn fields(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut names: Vec<String> =
        properties.flat_map(|(name, property)| [vec![name.clone()], fields(property)].concat()).collect();
    if schema["items"].is_object() {
        names.extend(fields(&schema["items"]));
    }
    names
}
