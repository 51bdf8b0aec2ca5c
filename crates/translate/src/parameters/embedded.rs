//! Pieces of a Pod that users write into GatewayClassParameters, read as the Kubernetes types they are meant to be.

use api::Embedded;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The valid items of a list. The others are reported in `problems`, and left out.
pub(crate) fn list<T: DeserializeOwned + Serialize>(
    field: &str,
    items: Option<&Vec<Embedded>>,
    problems: &mut Vec<String>,
) -> Vec<T> {
    let items = items.map_or(&[][..], Vec::as_slice);
    let read = |(index, item): (usize, &Embedded)| one(&format!("{field}[{index}]"), item, problems);
    items.iter().enumerate().filter_map(read).collect()
}

pub(crate) fn one<T: DeserializeOwned + Serialize>(
    field: &str,
    item: &Embedded,
    problems: &mut Vec<String>,
) -> Option<T> {
    let written = Value::Object(item.0.clone());
    let read: T = match serde_json::from_value(written.clone()) {
        Ok(read) => read,
        Err(error) => {
            problems.push(format!("{field}: {error}: correct it (it is left out)"));
            return None;
        }
    };
    // A field that the type does not have would be dropped silently.
    let known = serde_json::to_value(&read).unwrap_or_default();
    let mut unknown = Vec::new();
    compare(field, &written, &known, &mut unknown);
    problems.extend(
        unknown.into_iter().map(|path| format!("{path}: there is no such field, or it is empty: remove it")),
    );
    Some(read)
}

fn compare(path: &str, written: &Value, known: &Value, unknown: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (name, value) in written.iter().filter(|(_, value)| !is_empty(value)) {
                let path = format!("{path}.{name}");
                match known.get(name) {
                    Some(known) => compare(&path, value, known, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (index, (written, known)) in written.iter().zip(known).enumerate() {
                compare(&format!("{path}[{index}]"), written, known, unknown);
            }
        }
        _ => {}
    }
}

/// Absent and empty are one and the same to Kubernetes. An empty mapping is not: `emptyDir: {}`.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Volume;
    use serde_json::json;

    use super::*;

    fn embedded(value: &Value) -> Embedded {
        Embedded(value.as_object().unwrap().clone())
    }

    #[test]
    fn a_volume_is_read_as_kubernetes_reads_it() {
        let mut problems = vec![];
        let items = vec![
            embedded(&json!({"name": "a", "emptyDir": {"sizeLimit": "1Gi"}})),
            embedded(&json!({"name": "b", "emptyDir": {}})),
        ];
        let volumes: Vec<Volume> = list("extraVolumes", Some(&items), &mut problems);
        assert_eq!(volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(volumes[1].empty_dir.is_some());
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn what_is_no_volume_is_left_out_and_what_is_unknown_is_said() {
        let mut problems = vec![];
        let items = vec![
            embedded(&json!({"name": "a", "emptyDir": "yes"})),
            embedded(&json!({"name": "b", "emptyDir": {"size": "1Gi"}, "secrets": {}})),
        ];
        let volumes: Vec<Volume> = list("extraVolumes", Some(&items), &mut problems);
        assert_eq!(volumes.len(), 1);
        assert!(problems[0].starts_with("extraVolumes[0]: invalid type"), "{problems:?}");
        assert!(
            problems[1].starts_with("extraVolumes[1].emptyDir.size: there is no such field"),
            "{problems:?}"
        );
        assert!(problems[2].starts_with("extraVolumes[1].secrets: "), "{problems:?}");
    }
}
