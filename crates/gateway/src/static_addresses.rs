//! `spec.addresses` of Gateways on one machine: there is no Service that could get them, so it is said that they have no effect.

use translate::{Addresses, Key, Notice, Severity, Snapshot};

/// One for each of these Gateways that asks for addresses.
pub(crate) fn notices<'a>(
    snapshot: &'a Snapshot,
    gateways: impl Iterator<Item = &'a Key>,
) -> impl Iterator<Item = Notice> {
    gateways.filter_map(|key| {
        let asked = Addresses::of(snapshot.gateways.get(key)?).usable;
        (!asked.is_empty()).then(|| Notice {
            object: format!("Gateway {key}"),
            severity: Severity::Warning,
            message: format!(
                "asks for {} in spec.addresses, which has no effect on one machine: it listens on all addresses, or on that of --bind",
                asked.join(", ")
            ),
        })
    })
}
