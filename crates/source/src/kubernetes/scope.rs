//! Which objects are watched, and where.

use std::collections::BTreeSet;

use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};

use super::client::WATCH_SECONDS;

/// Which objects of a kind.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Scope {
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), fields: None }
    }

    pub fn fields(selector: impl Into<String>) -> Self {
        Self { labels: None, fields: Some(selector.into()) }
    }

    pub fn name(name: &str) -> Self {
        Self::fields(format!("metadata.name={name}"))
    }

    pub(super) fn config(self) -> watcher::Config {
        watcher::Config {
            label_selector: self.labels,
            field_selector: self.fields,
            ..watcher::Config::default().timeout(WATCH_SECONDS)
        }
    }
}

/// Where objects of namespaced kinds are watched: everywhere, or in these namespaces alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeSet<String>);

impl Namespaces {
    /// In no namespace but these; everywhere where there are none.
    pub fn only(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    pub fn contain(&self, namespace: &str) -> bool {
        self.0.is_empty() || self.0.contains(namespace)
    }

    /// One for each namespace, or one for all of them.
    pub fn apis<T>(&self, client: &Client) -> Vec<Api<T>>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.0.is_empty() {
            true => vec![Api::all(client.clone())],
            false => self.0.iter().map(|name| Api::namespaced(client.clone(), name)).collect(),
        }
    }
}
