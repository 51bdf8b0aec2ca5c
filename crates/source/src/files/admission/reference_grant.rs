//! ReferenceGrant.

use super::super::schema::Node;
use super::format;

pub(super) fn describe(schema: &mut Node) {
    let from = schema.at("spec.from").items(1..=16);
    from.item().at("group").format(format::group);
    from.item().at("kind").format(format::kind);
    from.item().at("namespace").format(format::label);
    let to = schema.at("spec.to").items(1..=16);
    to.item().at("group").format(format::group);
    to.item().at("kind").format(format::kind);
    to.item().at("name").format(format::object_name);
}
