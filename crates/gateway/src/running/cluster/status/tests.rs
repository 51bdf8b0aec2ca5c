use serde_json::json;

use super::*;

#[test]
fn each_reason_is_said_once() {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let gateway: Gateway = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": { "gatewayClassName": "varnish", "listeners": [] },
        "status": {
            "conditions": [condition("Programmed", "Pending", "No pod runs yet")],
            "listeners": [
                { "name": "http", "attachedRoutes": 0, "supportedKinds": [],
                  "conditions": [condition("Programmed", "Pending", "No pod runs yet")] },
                { "name": "https", "attachedRoutes": 0, "supportedKinds": [], "conditions": [
                    condition("ResolvedRefs", "InvalidCertificateRef", "no Secret"),
                    condition("Programmed", "Invalid", "no Secret"),
                ] },
            ],
        },
    }))
    .unwrap();
    assert_eq!(
        problems(&gateway),
        ["Pending: No pod runs yet", "listener https: InvalidCertificateRef: no Secret"]
    );
    assert_eq!(closed(&gateway), BTreeSet::from(["http".to_owned(), "https".to_owned()]));
}
