//! CustomResourceDefinitions of the Gateway API, as far as we read them: their annotations. Their schemas are large and stay out of memory.

use std::borrow::Cow;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Definition {
    pub(crate) metadata: ObjectMeta,
}

impl Resource for Definition {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(kind: &()) -> Cow<'_, str> {
        CustomResourceDefinition::kind(kind)
    }

    fn group(kind: &()) -> Cow<'_, str> {
        CustomResourceDefinition::group(kind)
    }

    fn version(kind: &()) -> Cow<'_, str> {
        CustomResourceDefinition::version(kind)
    }

    fn plural(kind: &()) -> Cow<'_, str> {
        CustomResourceDefinition::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
