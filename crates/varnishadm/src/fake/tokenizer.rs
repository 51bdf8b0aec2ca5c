//! A model of how varnishd reads commands, quirks included: `cls_feed` and `VAV_Parse` of 7.0 and later, after
//! authentication.

use std::mem;

/// Takes bytes, gives commands.
#[derive(Debug, Default)]
pub struct Tokenizer {
    line: Vec<u8>,
    here: Option<Here>,
}

#[derive(Debug)]
struct Here {
    words: Vec<String>,
    token: Vec<u8>,
    /// How much of the token the last bytes were.
    matched: usize,
    text: Vec<u8>,
}

impl Tokenizer {
    /// The words of the command that this byte completes, or varnishd's complaint.
    pub fn feed(&mut self, byte: u8) -> Option<Result<Vec<String>, &'static str>> {
        let newline = byte == b'\n' || byte == b'\r';
        if let Some(here) = &mut self.here {
            if here.matched == here.token.len() && newline {
                let Here { mut words, text, .. } = self.here.take()?;
                words.push(String::from_utf8_lossy(&text).into_owned());
                return Some(Ok(words));
            }
            // As in varnishd: after a mismatch, this very byte is not tried as the token's first.
            if here.token.get(here.matched) == Some(&byte) {
                here.matched += 1;
            } else {
                here.text.extend_from_slice(&here.token[..mem::take(&mut here.matched)]);
                here.text.push(byte);
            }
            return None;
        }
        if self.line.is_empty() && is_space(byte) {
            return None;
        }
        if !newline {
            self.line.push(byte);
            return None;
        }
        let mut words = match words(&mem::take(&mut self.line)) {
            Ok(words) => words,
            Err(why) => return Some(Err(why)),
        };
        if let [_, .., mark, token] = words.as_slice()
            && mark == "<<"
            && !token.is_empty()
        {
            let token = words.pop()?.into_bytes();
            words.pop();
            self.here = Some(Here { words, token, matched: 0, text: Vec::new() });
            return None;
        }
        Some(Ok(words))
    }

    /// Whether it is between two commands.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty() && self.here.is_none()
    }
}

fn words(line: &[u8]) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line;
    let mut after_quote = false;
    loop {
        rest = rest.trim_ascii_start();
        // C's isspace has the vertical tab, Rust's has not.
        if let [0x0b, after @ ..] = rest {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Ok(words);
        }
        let quoted = rest[0] == b'"';
        if quoted && mem::take(&mut after_quote) {
            return Err("Missing separator between arguments");
        }
        after_quote = quoted;
        rest = &rest[usize::from(quoted)..];
        let mut word = Vec::new();
        loop {
            match rest {
                [b'\\', ..] => {
                    let (byte, length) = escape(rest).ok_or("Invalid backslash sequence")?;
                    word.push(byte);
                    rest = &rest[length..];
                }
                [] if quoted => return Err("Missing '\"'"),
                [] => break,
                [b'"', after @ ..] if quoted => {
                    rest = after;
                    break;
                }
                [b'"', ..] => return Err("Invalid '\"'"),
                [byte, ..] if !quoted && is_space(*byte) => break,
                [byte, after @ ..] => {
                    word.push(*byte);
                    rest = after;
                }
            }
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
}

/// The byte that an escape stands for, and its length.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    match text.get(1)? {
        b'n' => Some((b'\n', 2)),
        b'r' => Some((b'\r', 2)),
        b't' => Some((b'\t', 2)),
        b'"' => Some((b'"', 2)),
        b'\\' => Some((b'\\', 2)),
        b'x' => {
            let digits = std::str::from_utf8(text.get(2..4)?).ok()?;
            let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            Some((u8::from_str_radix(digits, 16).ok()?, 4))
        }
        b'0'..=b'7' => {
            let digits = text[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
            let (value, length) = digits.fold((0_u8, 1), |(value, length), digit| {
                (value.wrapping_shl(3) | (digit - b'0'), length + 1)
            });
            Some((value, length))
        }
        _ => None,
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> Vec<Result<Vec<String>, &'static str>> {
        let mut tokenizer = Tokenizer::default();
        input.bytes().filter_map(|byte| tokenizer.feed(byte)).collect()
    }

    /// Each of these was tried on varnishd 7.1.1.
    #[test]
    fn it_reads_like_varnishd() {
        for (line, words) in [
            ("a b", Ok(vec!["a", "b"])),
            ("  a \t b\x0b ", Ok(vec!["a", "b"])),
            ("\"a\" b", Ok(vec!["a", "b"])),
            ("a \"b c\"", Ok(vec!["a", "b c"])),
            ("a \"\"", Ok(vec!["a", ""])),
            ("a \"b\",c", Ok(vec!["a", "b", ",c"])),
            ("a #b", Ok(vec!["a", "#b"])),
            (r"a b\x20c\101\1", Ok(vec!["a", "b cA\u{1}"])),
            (r#"a \"b\\"#, Ok(vec!["a", "\"b\\"])),
            (r"a \x4", Err("Invalid backslash sequence")),
            (r"a \.", Err("Invalid backslash sequence")),
            ("a b\"", Err("Invalid '\"'")),
            ("a \"b", Err("Missing '\"'")),
            ("a \"b\" \"c\"", Err("Missing separator between arguments")),
        ] {
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(read(&format!("{line}\n")), [words], "{line}");
        }
    }

    #[test]
    fn a_here_document_ends_at_its_token_and_a_newline() {
        let words = |text: &str| vec![Ok(vec!["v".to_owned(), text.to_owned()])];
        assert_eq!(read("v << E\nsome\ntext\nE\n"), words("some\ntext\n"));
        assert_eq!(read("v << EOF\ntextEOF\n"), words("text"));
        assert_eq!(read("v << EOF\nEOFEO\nEOF\n"), words("EOFEO\n"));
        assert_eq!(read("v \"<<\" EOF\nx\nEOF\r"), words("x\n"));
        assert_eq!(read("v << EOF\nEEOF\n"), vec![], "missed after a part of itself");
    }
}
