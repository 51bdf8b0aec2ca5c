//! Pieces of schema that the derive cannot make out of a Rust type: CEL rules, embedded objects, quantities.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A duration of the Gateway API: `3s500ms`, `1m`.
pub(crate) const DURATION: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";
/// The name of a namespaced object, a volume or a container.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// What a storage may be sized with. `256m` would be a quarter of a byte, so `m` is not in it.
pub(crate) const SIZE: &str = "^[1-9][0-9]*([KMGT]i|[kMGT])?$";
/// A number from 0 to 1.
pub(crate) const FRACTION: &str = "^(0(\\.[0-9]{1,3})?|1(\\.0{1,3})?)$";
/// A token of RFC 9110.
pub(crate) const HEADER_NAME: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
/// One value out of a list such as Accept-Language or Accept, without parameters.
pub(crate) const NORMAL_VALUE: &str = "^[A-Za-z0-9!#$%&'+.^_`|~/-]+$";
/// CEL: a header that says which variant of an answer is wanted, and nothing else.
pub(crate) const MAY_BE_NORMALIZED: &str = "!(self.lowerAscii() in ['accept-encoding', 'authorization', 'cache-control', 'connection', \
     'cookie', 'expect', 'forwarded', 'host', 'origin', 'range', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'via']) && \
     !['access-control-', 'content-', 'if-', 'proxy-', 'x-forwarded-', 'x-gateway-', 'x-ghost-'].exists(start, \
     self.lowerAscii().startsWith(start))";
/// A host in lower case, without wildcard.
pub(crate) const HOSTNAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// What can stand in a request line, without the quotation mark that could end a ban expression's string.
pub(crate) const URL_PART: &str = "^[!#-~]+$";
/// A Kubernetes quantity as people write it.
const QUANTITY: &str = "^[0-9]+(\\.[0-9]+)?([KMGTPE]i|[mkMGTPE])?$";

/// `x-kubernetes-validations`: each CEL rule with its message.
pub(crate) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// The rule for a time that must not be zero.
pub(crate) fn not_zero() -> Value {
    rules(&[("duration(self) > duration('0s')", "the duration must be longer than zero")])
}

/// The rule for a time that must not be zero, and not long.
pub(crate) fn up_to_one_hour() -> Value {
    rules(&[(
        "duration(self) > duration('0s') && duration(self) <= duration('1h')",
        "the duration must be longer than zero, and 1h at most",
    )])
}

/// The rule for headers that ghost keeps for itself. `name` is where the list's item has the header's name.
pub(crate) fn no_ghost_headers(name: &str) -> Value {
    let item = name.split('.').next().unwrap_or(name);
    let rule = format!("self.all({item}, !{name}.lowerAscii().startsWith('x-ghost-'))");
    rules(&[(&rule, "headers that begin with X-Ghost- belong to the gateway")])
}

/// A moment.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Conditions as Kubernetes has them.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let text = |longest: u32| json!({"type": "string", "maxLength": longest});
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": text(316),
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": text(32_768),
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    })
}

/// The rule for networks and addresses.
pub(crate) fn networks() -> Value {
    rules(&[(
        "self.all(network, isCIDR(network) || isIP(network))",
        "each must be a network such as 10.0.0.0/8 or fd00::/8, or one address",
    )])
}

/// A number or a percentage of pods.
pub(crate) fn pods(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": rules(&[(
            "type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[1-9]?[0-9])%$')",
            "must be a number of pods or a percentage such as 50%",
        )]),
    })
}

/// CPU, memory and the like by name.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
                "pattern": QUANTITY,
            "maxLength": 32,
        },
    })
}

pub(crate) fn volumes(_: &mut SchemaGenerator) -> Schema {
    list_of_named(
        &json!({"name": name()}),
        &["name"],
        &[("!self.name.startsWith('gateway-')", "names that begin with gateway- belong to the gateway")],
    )
}

pub(crate) fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    let path = json!({"type": "string", "minLength": 1, "maxLength": 512, "pattern": "^/[^:]*$"});
    let item = embedded(
        &json!({"name": name(), "mountPath": path}),
        &["name", "mountPath"],
        &[(
            "!['/var/run/varnish', '/tmp', '/etc/varnish-gateway'].exists(p, self.mountPath == p || \
             self.mountPath.startsWith(p + '/'))",
            "/var/run/varnish, /tmp and /etc/varnish-gateway belong to the gateway",
        )],
    );
    list(&item, &["mountPath"])
}

pub(crate) fn init_containers(_: &mut SchemaGenerator) -> Schema {
    let image = json!({"type": "string", "minLength": 1, "maxLength": 1024});
    list_of_named(
        &json!({"name": name(), "image": image}),
        &["name", "image"],
        &[(
            "!(self.name in ['chaperone', 'logging'])",
            "chaperone and logging are the gateway's own containers",
        )],
    )
}

pub(crate) fn topology_spread(_: &mut SchemaGenerator) -> Schema {
    let key = json!({"type": "string", "minLength": 1, "maxLength": 317});
    let item = embedded(
        &json!({
            "maxSkew": {"type": "integer", "format": "int32", "minimum": 1},
            "topologyKey": key,
            "whenUnsatisfiable": {"type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"]},
        }),
        &["maxSkew", "topologyKey", "whenUnsatisfiable"],
        &[],
    );
    list(&item, &["topologyKey", "whenUnsatisfiable"])
}

pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "maxLength": 317},
                "operator": {"type": "string", "enum": ["Exists", "Equal"]},
                "value": {"type": "string", "maxLength": 63},
                "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
            },
        },
    })
}

/// An object of which Kubernetes itself knows more than is worth repeating here.
pub(crate) fn open(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": LABEL})
}

fn embedded(properties: &Value, required: &[&str], checks: &[(&str, &str)]) -> Value {
    let mut item = json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
    });
    if !checks.is_empty() {
        item["x-kubernetes-validations"] = rules(checks);
    }
    item
}

fn list_of_named(properties: &Value, required: &[&str], checks: &[(&str, &str)]) -> Schema {
    list(&embedded(properties, required, checks), &["name"])
}

/// No two items have the same `keys`.
fn list(item: &Value, keys: &[&str]) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": keys,
    })
}
