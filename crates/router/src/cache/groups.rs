//! Cache-Groups and Cache-Group-Invalidation (RFC 9875): lists of strings, by structured fields. Total: any bytes have a reading.

use sfv::{BareItem, List, ListEntry, Parser};

/// A longer tag or group is none: no invalidation can name it.
pub const LONGEST_TAG: usize = 256;

/// The groups that all lines of a field name, without parameters. None where a line is not valid, or an item is not a string: then it is as
/// if the field were not there. Names that are empty or longer than [`LONGEST_TAG`] are left out.
pub fn groups<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> impl Iterator<Item = String> {
    let mut list = Some(List::new());
    for line in lines {
        list = list.and_then(|list| Parser::new(line).parse_list_with_visitor(list).ok());
    }
    let names: Option<Vec<String>> = list.unwrap_or_default().into_iter().map(name).collect();
    let fits = |name: &String| (1..=LONGEST_TAG).contains(&name.len());
    names.unwrap_or_default().into_iter().filter(fits)
}

fn name(entry: ListEntry) -> Option<String> {
    match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(name) => Some(name.into()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(lines: &[&str]) -> Vec<String> {
        groups(lines.iter().map(|line| line.as_bytes())).collect()
    }

    #[test]
    fn groups_are_strings() {
        assert_eq!(of(&["\"a\", \"b\"", " \"c\",\"d\" "]), ["a", "b", "c", "d"]);
        assert_eq!(of(&["\"a\";x=1;y, \"b\"  ;z=\"c\""]), Vec::<String>::new(), "a blank before a parameter");
        assert_eq!(of(&["\"a\";x=1;y, \"b\"; z=\"c\""]), ["a", "b"]);
        assert_eq!(of(&["\"two words, and a comma\""]), ["two words, and a comma"]);
        assert_eq!(of(&[r#""a\"b\\c""#]), [r#"a"b\c"#]);
        assert_eq!(of(&["", "\"a\""]), ["a"]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_field_with_anything_else_is_ignored() {
        for other in [
            "a",
            "\"a\" \"b\"",
            "\"a\",",
            "\"a",
            "1",
            "?1",
            ":YQ==:",
            "(\"a\")",
            "\"a\", b",
            "\"\u{e9}\"",
            "%\"a\"",
        ] {
            assert!(of(&[other]).is_empty(), "{other}");
            assert!(of(&["\"a\"", other]).is_empty() && of(&[other, "\"a\""]).is_empty(), "{other}");
        }
    }

    #[test]
    fn long_and_empty_names_are_none() {
        let long = format!("\"{}\", \"\", \"a\"", "x".repeat(LONGEST_TAG + 1));
        assert_eq!(of(&[&long]), ["a"]);
        let longest = "x".repeat(LONGEST_TAG);
        assert_eq!(of(&[&format!("\"{longest}\"")]), [longest]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_reading(line in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = groups([line.as_slice()]).count();
        }

        #[test]
        fn what_is_written_is_read(names in proptest::collection::vec("[ -~]{1,20}", 0..20)) {
            let escaped = |name: &String| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
            let line = names.iter().map(escaped).collect::<Vec<_>>().join(", ");
            prop_assert_eq!(of(&[&line]), names);
        }
    }
}
