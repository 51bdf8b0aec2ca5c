//! Updates our CustomResourceDefinitions in the cluster. Never downgrades them: of two installations the newer one decides.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use translate::Key;

use crate::Error;

const MANAGER: &str = "varnish-gateway-crds";
/// Which release wrote a definition.
const RELEASE: &str = "gateway.varnish-software.com/release";

pub async fn apply_crds(client: &Client, release: &str) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, mut definition) in api::crd::all() {
        let name =
            definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = Key::cluster(&name);
        let there = api
            .get_metadata_opt(&name)
            .await
            .map_err(Error::write("CustomResourceDefinition", &key))?
            .and_then(|there| there.metadata.annotations?.get(RELEASE).cloned());
        if let Some(there) = there.filter(|there| number(there) > number(release)) {
            tracing::warn!("CustomResourceDefinition {name} is of release {there}, and stays");
            continue;
        }
        definition["metadata"]["annotations"] = json!({ RELEASE: release });
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .map_err(Error::write("CustomResourceDefinition", &key))?;
        tracing::info!("CustomResourceDefinition {name} is of release {release}");
    }
    Ok(())
}

/// A pre-release counts as its release. Text that is not a version is older than every version.
fn number(release: &str) -> Vec<u64> {
    let release = release.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert!(number("0.10.0") > number("0.9.1"));
        assert!(number("1.0.0") > number("0.9.1"));
        assert!(number("0.2.0-rc.1") > number("0.1.9"));
        assert_eq!(number("0.2.0-rc.1"), number("0.2.0"));
        assert!(number("0.1.0") > number("dev"));
    }
}
