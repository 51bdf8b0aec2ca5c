//! What the admission tests share: one object in, its outcome out.

use source::files::parse_str;
use translate::snapshot::Snapshot;

/// The snapshot of an object that must be admitted.
pub(crate) fn admitted(manifest: &str) -> Snapshot {
    let (snapshot, problems) = parse_str("test.yaml", manifest);
    assert!(problems.is_empty(), "refused: {}\n{manifest}", problems[0]);
    snapshot
}

/// The one message about an object that must be refused, without what counts in its place.
pub(crate) fn refused(manifest: &str) -> String {
    let (_, problems) = parse_str("test.yaml", manifest);
    assert_eq!(problems.len(), 1, "{problems:?}\n{manifest}");
    assert!(problems[0].is_error());
    problems[0].message.split("; until it is corrected").next().unwrap_or_default().to_owned()
}

fn indented(text: &str, by: usize) -> String {
    text.trim_matches('\n').lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// An HTTPRoute with this spec.
pub(crate) fn route(spec: &str) -> String {
    let spec = indented(spec, 2);
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: shop}}\nspec:\n{spec}"
    )
}

/// An HTTPRoute with one rule.
pub(crate) fn rule(rule: &str) -> String {
    let rule = indented(rule, 2);
    route(&format!("rules:\n-{}", &rule[1..]))
}

/// A Gateway with this spec beside its class.
pub(crate) fn gateway(spec: &str) -> String {
    let spec = indented(spec, 2);
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
         gatewayClassName: varnish\n{spec}"
    )
}

/// A Gateway with these listeners, written as YAML flow mappings.
pub(crate) fn listeners(listeners: &[&str]) -> String {
    gateway(&format!("listeners: [{}]", listeners.join(", ")))
}

/// Any other object.
pub(crate) fn object(api_version: &str, kind: &str, rest: &str) -> String {
    format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: thing}}\n{}", indented(rest, 0))
}
