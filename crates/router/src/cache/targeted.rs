//! Cache-Control for some caches only: the fields of RFC 9213, and Surrogate-Control, which is older.

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::Answer;
use super::directives::{Directives, end_of_part, parts};
use super::number::delta_seconds;

/// What Cache-Control gives way to where the policy names no others.
pub(super) const DEFAULT_TARGETS: [&str; 1] = ["CDN-Cache-Control"];
pub(super) const SURROGATE_CONTROL: &str = "Surrogate-Control";

/// What a field of RFC 9213 says: a dictionary of structured fields. `None` where it is not there, empty, or not valid, and where a
/// directive has a value of another type than it should: then it is as if the field were not there.
pub(super) fn targeted<'s>(answer: &impl Answer, name: &str) -> Option<Directives<'s>> {
    let mut joined: Vec<u8> = Vec::new();
    answer.any_header(name, &mut |line| {
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(line);
        false
    });
    if joined.is_empty() { None } else { read(&joined) }
}

fn read<'s>(field: &[u8]) -> Option<Directives<'s>> {
    let dictionary: Dictionary = Parser::new(field).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut says = Directives::default();
    for (key, member) in &dictionary {
        let ListEntry::Item(item) = member else {
            // A list of field names would be of another form; no directive has an inner list.
            if is_known(key.as_str()) {
                return None;
            }
            continue;
        };
        let value = &item.bare_item;
        match key.as_str() {
            "no-store" => says.no_store = flag(value)?,
            // With field names, it is taken for the whole: dictionaries of RFC 9213 have no such form.
            "no-cache" => says.no_cache = flag_or_names(value)?,
            "private" => says.private = flag_or_names(value)?,
            "public" => says.public = flag(value)?,
            "must-revalidate" => says.must_revalidate = flag(value)?,
            "proxy-revalidate" => says.proxy_revalidate = flag(value)?,
            "must-understand" => says.must_understand = flag(value)?,
            "max-age" => says.max_age = Some(seconds(value)?),
            "s-maxage" => says.s_maxage = Some(seconds(value)?),
            "stale-while-revalidate" => says.stale_while_revalidate = Some(seconds(value)?),
            "stale-if-error" => says.stale_if_error = Some(seconds(value)?),
            _ => {}
        }
    }
    Some(says)
}

fn is_known(key: &str) -> bool {
    matches!(
        key,
        "no-store"
            | "no-cache"
            | "private"
            | "public"
            | "must-revalidate"
            | "proxy-revalidate"
            | "must-understand"
            | "max-age"
            | "s-maxage"
            | "stale-while-revalidate"
            | "stale-if-error"
    )
}

fn flag(value: &BareItem) -> Option<bool> {
    value.as_boolean()
}

fn flag_or_names(value: &BareItem) -> Option<bool> {
    value.as_boolean().or_else(|| value.as_string().map(|_| true))
}

fn seconds(value: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(value.as_integer()?)).ok()
}

/// What Surrogate-Control says, where it says anything about keeping: `content="ESI/1.0"` alone does not.
pub(super) fn surrogate<A: Answer>(answer: &A) -> Option<Directives<'_>> {
    let mut says = Directives::default();
    answer.any_header(SURROGATE_CONTROL, &mut |line| {
        parts(line).filter_map(for_all).for_each(|directive| read_surrogate(&mut says, directive));
        false
    });
    (says.no_store || says.max_age.is_some()).then_some(says)
}

/// A directive of Surrogate-Control without its parameters. `None` where they name a surrogate (`max-age=60;akamai`): the gateway has no
/// name that an origin could use.
fn for_all(part: &[u8]) -> Option<&[u8]> {
    let (directive, parameters) = part.split_at(end_of_part(part, b';'));
    let names_one = parameters.iter().any(|b| *b != b';' && !b.is_ascii_whitespace());
    (!names_one).then(|| directive.trim_ascii())
}

/// As in Cache-Control, but `max-age=600+30` is fresh for 600 seconds and may be served stale for 30 more.
fn read_surrogate<'s>(says: &mut Directives<'s>, directive: &'s [u8]) {
    let Some((_, number)) =
        directive.split_at_checked(8).filter(|(name, _)| name.eq_ignore_ascii_case(b"max-age="))
    else {
        return says.read(directive);
    };
    let mut both = number.splitn(2, |b| *b == b'+').map(delta_seconds);
    match (both.next().flatten(), both.next().flatten()) {
        (Some(fresh), Some(stale)) if says.max_age.is_none() => {
            says.max_age = Some(fresh);
            says.stale_while_revalidate.get_or_insert(stale);
        }
        _ => says.read(directive),
    }
}

#[cfg(test)]
mod tests;
