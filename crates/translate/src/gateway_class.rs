//! GatewayClasses that name our controller.

use gateway_api::gatewayclasses::GatewayClass;

use crate::parameters::{self, Reference};
use crate::snapshot::{Key, Snapshot};
use crate::status::{ACCEPTED, Condition, GatewayClassStatus};

/// A GatewayClass of ours.
#[derive(Debug)]
pub(crate) struct Class<'a> {
    pub(crate) key: &'a Key,
    object: &'a GatewayClass,
    /// Why its parameters cannot be read, if so.
    fault: Option<String>,
}

/// All GatewayClasses of ours, by name.
pub(crate) fn ours(snapshot: &Snapshot) -> Vec<Class<'_>> {
    let ours = |class: &GatewayClass| class.spec.controller_name == snapshot.controllers.gateway;
    let ours = snapshot.gateway_classes.iter().filter(|(_, class)| ours(class));
    ours.map(|(key, object)| {
        let fault = reference(object).and_then(|reference| parameters::find(reference, snapshot).err());
        Class { key, object, fault }
    })
    .collect()
}

fn reference(class: &GatewayClass) -> Option<Reference<'_>> {
    let reference = class.spec.parameters_ref.as_ref()?;
    Some(Reference { group: &reference.group, kind: &reference.kind, name: &reference.name })
}

impl Class<'_> {
    pub(crate) fn parameters_ref(&self) -> Option<Reference<'_>> {
        reference(self.object)
    }

    pub(crate) fn status(&self) -> GatewayClassStatus {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let accepted = match &self.fault {
            None => Condition::new(
                ACCEPTED,
                true,
                "Accepted",
                "Gateways of this class are served by Varnish",
                generation,
            ),
            Some(fault) => Condition::new(
                ACCEPTED,
                false,
                "InvalidParameters",
                format!("spec.parametersRef {fault}"),
                generation,
            ),
        };
        GatewayClassStatus { conditions: vec![accepted] }
    }
}
