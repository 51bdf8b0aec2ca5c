//! ReferenceGrants: who may refer across namespaces to what.

use std::collections::HashMap;

use gateway_api::referencegrants::ReferenceGrant;

use crate::snapshot::Snapshot;

/// All grants by the namespace that gives them.
#[derive(Debug)]
pub(crate) struct Grants<'a> {
    by_namespace: HashMap<&'a str, Vec<&'a ReferenceGrant>>,
}

/// The object that refers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
}

/// The object that is referred to, of any kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Grants<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_namespace: HashMap<&str, Vec<&ReferenceGrant>> = HashMap::new();
        for (key, grant) in &snapshot.reference_grants {
            by_namespace.entry(&key.namespace).or_default().push(grant);
        }
        Self { by_namespace }
    }

    /// Within one namespace nothing has to be granted.
    pub(crate) fn permit(&self, from: From<'_>, to: To<'_>) -> bool {
        from.namespace == to.namespace
            || self.by_namespace.get(to.namespace).into_iter().flatten().any(|grant| {
                grant
                    .spec
                    .from
                    .iter()
                    .any(|f| f.group == from.group && f.kind == from.kind && f.namespace == from.namespace)
                    && grant.spec.to.iter().any(|t| {
                        // An empty name is the API server's way to write none.
                        let named = t.name.as_deref().is_none_or(|name| name.is_empty() || name == to.name);
                        t.group == to.group && t.kind == to.kind && named
                    })
            })
    }
}
