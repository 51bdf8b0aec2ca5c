//! VCL as tokens, as far as it takes to find names outside of comments and strings. Any text is accepted: the compiler judges it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `sub`, `req.http.X-Id`, `std.log`, `.host`
    Name,
    /// Without its quotes.
    String,
    Number,
    /// One or two characters.
    Symbol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

const PAIRS: &[&str] = &["==", "!=", "!~", "<=", ">=", "&&", "||", "+=", "-=", "*=", "/=", "++", "--"];

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (kind, shown, length) = next(rest, first);
        if let Some(kind) = kind {
            found.push(Token { line, kind, text: shown });
        }
        let (taken, after) = rest.split_at(length);
        line += taken.matches('\n').count();
        rest = after;
    }
    found
}

/// What stands at the beginning: its kind if it is a token, its text, and how many bytes it takes.
fn next(rest: &str, first: char) -> (Option<Kind>, &str, usize) {
    for (begin, end, kind) in [
        ("#", "\n", None),
        ("//", "\n", None),
        ("/*", "*/", None),
        ("C{", "}C", None),
        ("\"\"\"", "\"\"\"", Some(Kind::String)),
        ("{\"", "\"}", Some(Kind::String)),
        ("\"", "\"", Some(Kind::String)),
    ] {
        if let Some(inside) = rest.strip_prefix(begin) {
            let length = inside.find(end);
            let shown = &inside[..length.unwrap_or(inside.len())];
            let taken = length.map_or(rest.len(), |length| begin.len() + length + end.len());
            return (kind, shown, taken);
        }
    }
    let span = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    if first.is_whitespace() {
        let length = span(char::is_whitespace);
        return (None, &rest[..length], length);
    }
    if first.is_ascii_digit() {
        let length = span(|c| c.is_ascii_digit() || c == '.');
        return (Some(Kind::Number), &rest[..length], length);
    }
    let is_field = first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_alphabetic());
    if first.is_ascii_alphabetic() || first == '_' || is_field {
        let length = span(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        return (Some(Kind::Name), &rest[..length], length);
    }
    let length = if PAIRS.iter().any(|pair| rest.starts_with(pair)) { 2 } else { first.len_utf8() };
    (Some(Kind::Symbol), &rest[..length], length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(usize, &str)> {
        tokens(text).into_iter().map(|token| (token.line, token.text)).collect()
    }

    #[test]
    fn comments_and_inline_c_are_left_out_and_strings_are_one_token() {
        let text = "# req.a\n// req.b\n/* req.c\n*/ set req.http.X-Id = \"a # b\" + {\"c\n\"} + \"\"\"d\"e\"\"\";\nC{ req.d }C .via = x;";
        assert_eq!(
            shown(text),
            [
                (4, "set"),
                (4, "req.http.X-Id"),
                (4, "="),
                (4, "a # b"),
                (4, "+"),
                (4, "c\n"),
                (5, "+"),
                (5, "d\"e"),
                (5, ";"),
                (6, ".via"),
                (6, "="),
                (6, "x"),
                (6, ";"),
            ]
        );
    }

    #[test]
    fn any_text_is_accepted() {
        for text in ["", "\"", "{\"", "/*", "C{", "é == ü", ".", "1e3 !~ x", "\u{0}", "#"] {
            tokens(text);
        }
        assert_eq!(shown("a!~b"), [(1, "a"), (1, "!~"), (1, "b")]);
    }
}
