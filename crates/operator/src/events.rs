//! Events, which `kubectl describe` shows.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};

/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1000;

#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    pub(crate) fn new(client: Client, controller: &str, identity: &str) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(identity.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    pub(crate) async fn tell<T: Resource<DynamicType = ()>>(
        &self,
        object: &T,
        good: bool,
        reason: &str,
        note: &str,
    ) {
        let reference = ObjectReference {
            api_version: Some(T::api_version(&()).into_owned()),
            kind: Some(T::kind(&()).into_owned()),
            name: Some(object.name_any()),
            namespace: object.namespace(),
            uid: object.uid(),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: if good { EventType::Normal } else { EventType::Warning },
            reason: reason.to_owned(),
            note: Some(note[..note.floor_char_boundary(LONGEST_NOTE)].to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(e) = self.0.publish(&event, &reference).await {
            tracing::debug!("event for {}: {e}", object.name_any());
        }
    }
}
