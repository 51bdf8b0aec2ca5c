//! Which Varnish Service serves an Ingress.

use std::collections::BTreeMap;

use model::names::{VARNISH_SERVICE_ANNOTATION, VARNISH_SERVICE_LABEL};

use super::class::Ours;
use super::made::Made;
use crate::gateway::Gateway;
use crate::listener::Fault;
use crate::snapshot::{Key, Snapshot};

/// All Varnish Services: Gateways of ours whose Service has the label.
#[derive(Debug)]
pub(super) struct Varnishes<'a> {
    all: Vec<Key>,
    by_namespace: BTreeMap<String, Vec<Key>>,
    made: &'a Made,
    snapshot: &'a Snapshot,
}

impl<'a> Varnishes<'a> {
    pub(super) fn new(
        gateways: &BTreeMap<&Key, Gateway<'_>>,
        made: &'a Made,
        snapshot: &'a Snapshot,
    ) -> Self {
        let labelled = gateways.iter().filter(|(_, gateway)| gateway.is_varnish_service());
        let all: Vec<Key> = labelled.map(|(key, _)| (*key).clone()).collect();
        let mut by_namespace: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        for key in &all {
            by_namespace.entry(key.namespace.clone()).or_default().push(key.clone());
        }
        Self { all, by_namespace, made, snapshot }
    }

    /// The one that the Ingress's annotation names, else its class's parameters; else the only one of the cluster; else
    /// the only one of its namespace.
    pub(super) fn choose(&self, ours: &Ours<'_>) -> Result<Key, Fault> {
        let namespace = &ours.key.namespace;
        let annotations = ours.object.metadata.annotations.as_ref();
        if let Some(text) = annotations.and_then(|all| all.get(VARNISH_SERVICE_ANNOTATION)) {
            let whose = format!("annotation {VARNISH_SERVICE_ANNOTATION}");
            return self.known(named(text, namespace)?, &whose);
        }
        if let Some(class) = ours.class
            && let Some(meant) = self.made.by_class.get(class)
        {
            let whose = format!("spec.parameters of IngressClass {class}");
            return match meant {
                Ok(key) => self.known(key.clone(), &whose),
                Err(why) => Err(Fault { reason: "InvalidParameters", message: format!("{whose} {why}") }),
            };
        }
        let of_namespace = self.by_namespace.get(namespace).map_or(&[][..], Vec::as_slice);
        match (self.all.as_slice(), of_namespace) {
            ([only], _) | (_, [only]) => Ok(only.clone()),
            ([], _) => {
                let (label, value) = VARNISH_SERVICE_LABEL;
                Err(Fault {
                    reason: "NoVarnishService",
                    message: format!(
                        "There is no Varnish Service: put the label {label}: {value} into spec.infrastructure.labels of \
                         a Gateway, or give the IngressClass parameters"
                    ),
                })
            }
            (_, several) => {
                let where_ = match several {
                    [] => format!("none of them in namespace {namespace}"),
                    some => format!("{} of them in namespace {namespace}", some.len()),
                };
                Err(Fault {
                    reason: "AmbiguousVarnishService",
                    message: format!(
                        "There are {} Varnish Services, {where_} ({}): choose one by the annotation \
                         {VARNISH_SERVICE_ANNOTATION}",
                        self.all.len(),
                        self.names()
                    ),
                })
            }
        }
    }

    fn known(&self, key: Key, whose: &str) -> Result<Key, Fault> {
        if self.all.contains(&key) {
            return Ok(key);
        }
        let (label, value) = VARNISH_SERVICE_LABEL;
        let what = if self.snapshot.gateways.contains_key(&key) {
            format!(
                "whose Service has no label {label}: {value}: put it into spec.infrastructure.labels of the Gateway"
            )
        } else if self.all.is_empty() {
            "which is no Varnish Service, and there is no other: correct the name, or make one".to_owned()
        } else {
            format!("which is no Varnish Service: use one of {}", self.names())
        };
        Err(Fault { reason: "UnknownVarnishService", message: format!("{whose} names {key}, {what}") })
    }

    /// As many as a person wants to read.
    fn names(&self) -> String {
        const SHOWN: usize = 10;
        let mut names: Vec<String> = self.all.iter().take(SHOWN).map(ToString::to_string).collect();
        if self.all.len() > SHOWN {
            names.push(format!("{} more", self.all.len() - SHOWN));
        }
        names.join(", ")
    }
}

/// `name` or `namespace/name`.
fn named(text: &str, own_namespace: &str) -> Result<Key, Fault> {
    let (namespace, name) = text.split_once('/').unwrap_or((own_namespace, text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(Fault {
            reason: "UnknownVarnishService",
            message: format!(
                "annotation {VARNISH_SERVICE_ANNOTATION}: `{text}` is not the name of a Service: write `name` or \
                 `namespace/name`"
            ),
        });
    }
    Ok(Key::new(namespace, name))
}
