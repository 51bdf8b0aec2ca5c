//! VarnishCachePolicies: fields that contradict each other, as the CEL rules of the definition say.

use crate::support::{admitted, object, refused};

fn policy(fields: &str) -> String {
    let spec = format!(
        "spec: {{targetRef: {{group: gateway.networking.k8s.io, kind: Gateway, name: gw}}, defaultTTL: 1m, {fields}}}"
    );
    object("gateway.varnish-software.com/v1alpha1", "VarnishCachePolicy", &spec)
}

#[test]
fn cache_policies_must_not_contradict_themselves() {
    admitted(&policy("methods: [QUERY, POST], invalidateOnUnsafe: true, noVarySearch: Ignore"));
    admitted(&policy("methods: [QUERY], invalidateOnUnsafe: false"));
    admitted(&policy("methods: [QUERY], noVarySearch: Obey"));
    for (fields, message) in [
        (
            "methods: [POST], invalidateOnUnsafe: false",
            "spec.invalidateOnUnsafe must not be false where methods has POST; remove one",
        ),
        (
            "methods: [POST], noVarySearch: Obey",
            "spec.noVarySearch must not be Obey where methods has POST; remove one",
        ),
        ("methods: [POST, POST]", "spec.methods \"POST\" is named twice; remove one"),
        (
            "normalize: [{header: Accept-Language, values: [en]}, {header: accept-language, values: [de]}]",
            "spec.normalize.header \"accept-language\" is named twice; give it all values at once",
        ),
        (
            "noVarySearch: Obey, cacheKey: {queryParameters: {include: [a]}}",
            "spec.noVarySearch must not be Obey where cacheKey has queryParameters; remove one",
        ),
        (
            "authorization: Share, bypass: {headers: [{name: Authorization}]}",
            "spec.authorization must not be Share where bypass.headers has Authorization; remove one",
        ),
    ] {
        assert_eq!(refused(&policy(fields)), message, "{fields}");
    }
}
