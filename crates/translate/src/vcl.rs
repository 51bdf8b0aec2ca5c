//! main.vcl: the generated part, the user's own, and the postamble, one after the other.
//!
//! Varnish joins subroutines of one name in the order in which they stand, so user VCL is never parsed. Generated code returns before user
//! VCL runs in five cases only: requests on ghost's own loopback socket, an object that was invalidated while it was looked for (`vcl_hit`), a fetch whose answer no client waits for
//! (`vcl_backend_fetch`), a request whose Cache-Control keeps it from fetching or storing (`vcl_miss`), and a restart that serves a stale object (`vcl_deliver`). In vcl_synth and vcl_backend_error it never returns.

pub mod engines;
mod tokens;

const PREAMBLE: &str = include_str!("vcl/preamble.vcl");
const POSTAMBLE: &str = include_str!("vcl/postamble.vcl");
/// Only behind user VCL, which may have changed the answer's status.
const COUNT: &str = include_str!("vcl/count.vcl");

/// Lines that frame the user's part, by which [`locate`] finds it again.
const USER_BEGIN: &str = "# >>> user VCL: ";
const USER_END: &str = "# <<< user VCL";

/// VCL that users bring along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVcl<'a> {
    /// Where it comes from, as `ConfigMap default/shop-vcl, key user.vcl`.
    pub origin: &'a str,
    pub text: &'a str,
}

/// The whole of main.vcl.
pub fn main_vcl(user: Option<&UserVcl<'_>>) -> String {
    let user = user.map(|UserVcl { origin, text }| {
        let text = without_version(text);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        format!("{USER_BEGIN}{origin}\n{text}{end}{USER_END}\n\n")
    });
    let count = if user.is_some() { COUNT } else { "" };
    format!("{PREAMBLE}\n{}{POSTAMBLE}{count}", user.unwrap_or_default())
}

/// The user's part of a main.vcl. Its lines are those of its origin.
pub fn user_part(main_vcl: &str) -> Option<UserVcl<'_>> {
    let begin = main_vcl.find(&format!("\n{USER_BEGIN}"))? + 1 + USER_BEGIN.len();
    let (origin, text) = main_vcl[begin..].split_once('\n')?;
    let end = text.rfind(&format!("{USER_END}\n"))?;
    Some(UserVcl { origin, text: &text[..end] })
}

/// User VCL may begin with `vcl 4.1;` like any VCL, but only one may stand in a file. It becomes blanks, so that
/// lines and columns stay what they are.
fn without_version(text: &str) -> String {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        rest = if rest.starts_with('#') || rest.starts_with("//") {
            rest.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            break;
        };
    }
    let start = text.len() - rest.len();
    let declares = rest.strip_prefix("vcl").filter(|r| r.starts_with(char::is_whitespace));
    match declares.and_then(|_| rest.find(';')) {
        Some(end) => {
            let blanks = |c: char| if c == '\n' { '\n' } else { ' ' };
            let blanked: String = rest[..=end].chars().map(blanks).collect();
            format!("{}{blanked}{}", &text[..start], &rest[end + 1..])
        }
        None => text.to_owned(),
    }
}

/// A place in main.vcl, as file and line of its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the user's part: where that comes from, and the line there.
    User { origin: String, line: usize },
    /// In what we generate behind the user's part.
    AfterUser { origin: String, last_line: usize },
    /// In what we generate.
    Generated { line: usize },
}

/// Where a line of main.vcl, counted from 1, comes from.
pub fn locate(main_vcl: &str, line: usize) -> Place {
    let (mut begin, mut end) = (None, None);
    for (at, text) in main_vcl.lines().enumerate().take(line) {
        if begin.is_none() {
            begin = text.strip_prefix(USER_BEGIN).map(|origin| (at + 1, origin));
        } else if text == USER_END {
            end = Some(at + 1);
        }
    }
    match begin {
        Some((begin, origin)) if end.is_some_and(|end| line > end) => {
            Place::AfterUser { origin: origin.to_owned(), last_line: end.map_or(0, |end| end - begin - 1) }
        }
        Some((begin, origin)) if line > begin => {
            Place::User { origin: origin.to_owned(), line: line - begin }
        }
        _ => Place::Generated { line },
    }
}

/// The compiler's message with the user's own line numbers. varnishd writes `('…' Line 61 Pos 3)`, and the
/// line itself below it.
pub fn explain_compiler_message(main_vcl: &str, message: &str) -> String {
    let mut explained = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find("Line ") {
        let (before, after) = rest.split_at(at + "Line ".len());
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let place = after[..digits].parse().ok().map(|line| locate(main_vcl, line));
        let quoted = before.rfind("('");
        match (place, quoted) {
            (Some(Place::User { origin, line }), Some(quoted)) => {
                explained.push_str(&before[..quoted]);
                explained.push_str(&format!("({origin}, line {line}"));
            }
            (Some(Place::AfterUser { origin, last_line }), Some(quoted)) => {
                // An error at the end of one part is reported at the beginning of the next.
                explained.push_str(&before[..quoted]);
                explained.push_str(&format!(
                    "({origin}, after its last line {last_line}: is a `}}` or a `;` missing?; main.vcl Line {}",
                    &after[..digits]
                ));
            }
            _ => {
                explained.push_str(before);
                explained.push_str(&after[..digits]);
            }
        }
        rest = &after[digits..];
    }
    explained.push_str(rest);
    explained
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "// mine\nvcl 4.1;\n\nsub vcl_recv {\n\tset req.http.X = 1 +;\n}";

    fn merged() -> String {
        main_vcl(Some(&UserVcl { origin: "ConfigMap a/b, key user.vcl", text: USER }))
    }

    #[test]
    fn the_users_part_is_found_again() {
        assert_eq!(user_part(&main_vcl(None)), None);
        let vcl = merged();
        let user = user_part(&vcl).unwrap();
        assert_eq!(user.origin, "ConfigMap a/b, key user.vcl");
        assert_eq!(user.text, without_version(USER) + "\n");
    }

    #[test]
    fn the_user_stands_between_preamble_and_postamble() {
        let vcl = merged();
        let at = |what: &str| vcl.find(what).unwrap();
        assert!(at("router.recv()") < at("set req.http.X") && at("set req.http.X") < at("X-Ghost-Pass"));
        assert_eq!(vcl.matches("vcl 4.1;").count(), 1);
        assert!(!main_vcl(None).contains("user VCL:"));
    }

    #[test]
    fn lines_are_the_users_own() {
        let vcl = merged();
        let line = vcl.lines().position(|l| l.contains("1 +;")).unwrap() + 1;
        let place = Place::User { origin: "ConfigMap a/b, key user.vcl".into(), line: 5 };
        assert_eq!(locate(&vcl, line), place);
        assert_eq!(locate(&vcl, 1), Place::Generated { line: 1 });
        let last = vcl.lines().count();
        let after = Place::AfterUser { origin: "ConfigMap a/b, key user.vcl".into(), last_line: 6 };
        assert_eq!(locate(&vcl, last), after);
        let message = format!("Unexpected\n('/run/x.vcl' Line {last} Pos 1)");
        assert_eq!(
            explain_compiler_message(&vcl, &message),
            format!(
                "Unexpected\n(ConfigMap a/b, key user.vcl, after its last line 6: is a `}}` or a `;` missing?; main.vcl Line {last} Pos 1)"
            )
        );
        let message = format!("Expected STRING\n('/run/x.vcl' Line {line} Pos 21)\n\tset req");
        assert_eq!(
            explain_compiler_message(&vcl, &message),
            "Expected STRING\n(ConfigMap a/b, key user.vcl, line 5 Pos 21)\n\tset req"
        );
    }

    #[test]
    fn only_a_leading_version_is_taken_away() {
        for text in ["sub x { }", "# vcl 4.1;\nsub x { }", "vclx y;"] {
            assert_eq!(without_version(text), text);
        }
        assert_eq!(without_version("/* a */ vcl  4.0 ;sub x { }"), "/* a */           sub x { }");
    }
}
