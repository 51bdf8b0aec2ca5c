//! The status of a GatewayClass: what it takes, which features it has, and whether the Gateway API's CRDs are of a known version.

use gateway_api::gatewayclasses::GatewayClass;
use serde_json::{Value, json};
use source::kubernetes::Store;
use translate::status::SUPPORTED_VERSION;
use translate::{Condition, GatewayClassStatus, Key, features};

use super::by_kind::Kind;
use super::conditions::{merge, same};
use super::{Write, Writer, apply, to_value};
use crate::definition::Definition;

const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
const CHANNEL: &str = "gateway.networking.k8s.io/channel";

impl Writer {
    pub(super) fn gateway_class(
        &self,
        key: &Key,
        class: &GatewayClass,
        status: &GatewayClassStatus,
    ) -> Option<Write> {
        let generation = class.metadata.generation.unwrap_or_default();
        let mut wanted = status.conditions.clone();
        wanted.push(self.supported_version(generation));
        let observed = to_value(&class.status);
        let channel = annotation(&self.owned.http_routes, CHANNEL);
        let supported = features::supported(channel.as_deref());
        let there: Vec<&str> = observed
            .get("supportedFeatures")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(|feature| feature.get("name")?.as_str()).collect())
            .unwrap_or_default();
        if same(&wanted, observed.get("conditions"))
            && there.len() == supported.len()
            && supported.iter().all(|feature| there.contains(feature))
        {
            return None;
        }
        let (conditions, news) = merge(&wanted, observed.get("conditions"));
        let supported: Vec<Value> = supported.iter().map(|name| json!({ "name": name })).collect();
        let body = json!({ "conditions": conditions, "supportedFeatures": supported });
        Some(Write {
            kind: Kind::GatewayClass,
            key: key.clone(),
            patch: apply::<GatewayClass>(key, &body),
            news,
        })
    }

    fn supported_version(&self, generation: i64) -> Condition {
        let installed = annotation(&self.owned.gateway_api, BUNDLE_VERSION);
        let missing = self.cluster.missing();
        let versions =
            format!("1.{} to 1.{}", features::MINOR_VERSIONS.start(), features::MINOR_VERSIONS.end());
        let minor = installed
            .as_deref()
            .and_then(|version| version.strip_prefix("v1.")?.split('.').next()?.parse::<u32>().ok());
        let good = minor.is_some_and(|minor| features::MINOR_VERSIONS.contains(&minor));
        let version = installed.unwrap_or_else(|| "an unknown version".to_owned());
        let mut message = if good {
            format!("The Gateway API's CRDs have version {version}")
        } else {
            format!(
                "The Gateway API's CRDs have version {version}; install one of {versions}. Gateways are served as far as possible"
            )
        };
        if !missing.is_empty() {
            message.push_str(&format!(". Not installed, and without effect: {}", missing.join(", ")));
        }
        let reason = if good { "SupportedVersion" } else { "UnsupportedVersion" };
        Condition::new(SUPPORTED_VERSION, good, reason, message, generation)
    }
}

/// Of the one definition in the store.
fn annotation(definition: &Store<Definition>, name: &str) -> Option<String> {
    let definition = definition.objects().into_values().next()?;
    definition.metadata.annotations.as_ref()?.get(name).cloned()
}
