//! No-Vary-Search: query parameters that the origin declares irrelevant for the response.

use sfv::{Dictionary, InnerList, ListEntry, Parser};

use super::Answer;
use super::query::Parameters;

const NAME: &str = "No-Vary-Search";
/// Longer values, and longer lists, are as if the field were not there.
const MOST_BYTES: usize = 4096;
const MOST_NAMES: usize = 64;

/// What the response says; `None` where the whole query counts, and where the field is not valid.
pub fn no_vary_search(answer: &impl Answer) -> Option<Parameters> {
    let mut joined: Vec<u8> = Vec::new();
    answer.any_header(NAME, &mut |line| {
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(line);
        false
    });
    if joined.is_empty() || joined.len() > MOST_BYTES { None } else { read(&joined) }
}

fn read(field: &[u8]) -> Option<Parameters> {
    let dictionary: Dictionary = Parser::new(field).parse().ok()?;
    let flag = |member: &ListEntry| match member {
        ListEntry::Item(item) => item.bare_item.as_boolean(),
        ListEntry::InnerList(_) => None,
    };
    let is_any_order = match dictionary.get("key-order") {
        Some(member) => flag(member)?,
        None => false,
    };
    let except = match dictionary.get("except") {
        Some(ListEntry::InnerList(list)) => Some(names(list)?),
        Some(ListEntry::Item(_)) => return None,
        None => None,
    };
    let (listed, only_these) = match dictionary.get("params") {
        Some(ListEntry::InnerList(list)) if except.is_none() => (names(list)?, false),
        Some(ListEntry::InnerList(_)) => return None,
        Some(member) if flag(member)? => (except.unwrap_or_default(), true),
        // Without params there is nothing to except.
        _ if except.is_some() => return None,
        _ => (Vec::new(), false),
    };
    let says_nothing = listed.is_empty() && !only_these && !is_any_order;
    (!says_nothing).then(|| Parameters::of_search(listed, only_these, !is_any_order))
}

fn names(list: &InnerList) -> Option<Vec<Box<[u8]>>> {
    if list.items.len() > MOST_NAMES {
        return None;
    }
    let name = |item: &sfv::Item| Some(item.bare_item.as_string()?.as_str().as_bytes().into());
    let mut names: Vec<Box<[u8]>> = list.items.iter().map(name).collect::<Option<_>>()?;
    names.sort();
    names.dedup();
    Some(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(field: &str, url: &str) -> Option<String> {
        let mut to = Vec::new();
        read(field.as_bytes())?.write(url.as_bytes(), &mut to);
        Some(String::from_utf8(to).unwrap())
    }

    #[test]
    fn the_origin_says_which_parameters_do_not_count() {
        for (field, url, left) in [
            ("key-order", "/a?b=1&a=2", "/a?a=2&b=1"),
            ("params", "/a?b=1&a=2", "/a"),
            ("params=?1", "/a?b=1", "/a"),
            ("params=(\"b\")", "/a?c=1&b=1&a=2", "/a?c=1&a=2"),
            ("params=(\"b\"), key-order", "/a?c=1&b=1&a=2", "/a?a=2&c=1"),
            ("params, except=(\"b\" \"c\")", "/a?c=1&b=1&a=2", "/a?c=1&b=1"),
            ("params, except=(\"b\" \"c\"), key-order", "/a?c=1&b=1&a=2", "/a?b=1&c=1"),
            ("params, except=(\"b\"), x=5", "/a?a=2", "/a"),
            ("params=(\"b\")", "/a?b=1;a=2", "/a?b=1;a=2"),
        ] {
            assert_eq!(written(field, url).as_deref(), Some(left), "{field}");
        }
        for nothing in [
            "",
            "key-order=?0",
            "params=?0",
            "params=()",
            "params=(b)",
            "params=\"b\"",
            "params=(1)",
            "except=(\"a\")",
            "params=(\"a\"), except=(\"b\")",
            "params, except=\"b\"",
            "key-order=1",
            "params=(\"b\"",
            "Key-Order",
        ] {
            assert_eq!(read(nothing.as_bytes()), None, "{nothing}");
        }
        let many: String = (0..65).map(|n| format!("\"p{n}\" ")).collect();
        assert_eq!(read(format!("params=({many})").as_bytes()), None);
        // The order of names does not matter.
        assert_eq!(read(b"params=(\"a\" \"b\")"), read(b"params=(\"b\" \"a\" \"a\")"));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_reading(field in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&field);
        }
    }
}
