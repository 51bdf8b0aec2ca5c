//! Hot objects: what the front may keep in its own memory.

use std::ops::RangeInclusive;

use api::HotObjectParameters;

use super::{Layers, limits::NEEDS_FRONT};
use crate::infra::HotObjects;

const BYTES: RangeInclusive<i64> = 1_048_576..=68_719_476_736;
const OBJECT_BYTES: RangeInclusive<i64> = 1024..=1_048_576;
/// The largest part of the container's memory that hot objects may take.
const SHARE_OF_MEMORY: u64 = 4;

/// Each setting is a field of its own. `memory`: the limit of the container, if it has one.
pub(super) fn hot_objects(
    layers: Layers<'_>,
    http_in_front: bool,
    memory: Option<u64>,
    problems: &mut Vec<String>,
) -> HotObjects {
    fn get<'a, T>(
        layers: Layers<'a>,
        field: impl Fn(&'a HotObjectParameters) -> Option<&'a T>,
    ) -> Option<&'a T> {
        layers.field(|spec| field(spec.hot_objects.as_ref()?))
    }
    let enabled = get(layers, |hot| hot.enabled.as_ref()).copied();
    let bytes = get(layers, |hot| hot.bytes.as_ref()).copied();
    let object = get(layers, |hot| hot.max_object_bytes.as_ref()).copied().map(i64::from);
    if !http_in_front {
        let wanted = enabled == Some(true) || (enabled.is_none() && (bytes.is_some() || object.is_some()));
        if wanted {
            problems.push(format!("hotObjects: not in use, {NEEDS_FRONT}"));
        }
        return HotObjects::default();
    }
    let mut read = |name: &str, value: Option<i64>, range: RangeInclusive<i64>| {
        let value = value?;
        let fits = u64::try_from(value).ok().filter(|_| range.contains(&value));
        if fits.is_none() {
            let (least, most) = range.into_inner();
            problems.push(format!(
                "hotObjects.{name}: {value} is refused: write a number between {least} and {most} (the default is in use)"
            ));
        }
        fits
    };
    let max_object_bytes = read("maxObjectBytes", object, OBJECT_BYTES);
    let most = memory.map(|memory| memory / SHARE_OF_MEMORY);
    let bytes = read("bytes", bytes, BYTES).filter(|bytes| match most.filter(|most| bytes > most) {
        Some(most) => {
            problems.push(format!(
                "hotObjects.bytes: {bytes} is more than a quarter of the container's memory limit: write at most {most}, or raise \
                 resources.limits.memory (the default is in use)"
            ));
            false
        }
        None => true,
    });
    HotObjects { disabled: enabled == Some(false), bytes, max_object_bytes }
}
