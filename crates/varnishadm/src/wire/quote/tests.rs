use proptest::prelude::*;

use super::*;
use crate::fake::Tokenizer;

/// What varnishd makes of the bytes: one command, nothing left over.
fn read(command: &Command) -> Vec<String> {
    let mut tokenizer = Tokenizer::default();
    let mut commands: Vec<_> =
        command.bytes().iter().filter_map(|byte| tokenizer.feed(*byte)).collect::<Result<_, _>>().unwrap();
    assert_eq!(commands.len(), 1, "{}", command.bytes().escape_ascii());
    assert!(tokenizer.is_empty(), "{}", command.bytes().escape_ascii());
    commands.remove(0)
}

#[test]
fn words_arrive_as_they_are() {
    let words =
        ["param.set", "", "a b", "\"", "\\", "\\n", "\n\r\t", "\u{1}\u{7f}", "ü\u{a0}", "#", "a,b", "-j"];
    assert_eq!(read(&Command::words(&words).unwrap()), words);
}

#[test]
fn a_text_arrives_whole_whatever_is_in_it() {
    for text in [
        "vcl 4.1;\n",
        "",
        "END_OF_TEXT_0",
        "END_OF_TEXT_0\nEND_OF_TEXT_1\nEND",
        "a\nEND_OF_TEXT_",
        "END_OF_TENDEND_OF_TEXT",
        "crlf\r\n\r\n",
        "\"\\ << ü",
    ] {
        let command = Command::with_text(&["vcl.inline", "name"], text).unwrap();
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        assert_eq!(read(&command), ["vcl.inline", "name", &format!("{text}{newline}")]);
    }
}

#[test]
fn what_varnishd_would_misread_is_refused() {
    for words in [
        vec![],
        vec![""],
        vec!["param.set", "cc_command", "a\0b"],
        vec!["param.set", "", ""],
        vec!["vcl.inline", "name", "<<", "EOF"],
        vec!["ban", "req.url", "~", "<<", "x"],
        vec!["ban", "req.url ~ << x"],
        vec!["ban", "req.url ~ <<", "x"],
    ] {
        let result = Command::words(&words);
        assert!(matches!(result, Err(Error::Argument { .. })), "{words:?} gives {result:?}");
    }
    assert!(Command::with_text(&["vcl.inline", "name"], "a\0b").is_err());
}

#[test]
fn labels_hold_no_texts() {
    let label = |words: &[&str]| Command::words(words).unwrap().label().to_owned();
    assert_eq!(label(&["vcl.use", "main_1"]), "vcl.use main_1");
    assert_eq!(label(&["vcl.inline", "main_1", "vcl 4.1;\n"]), "vcl.inline main_1 <9 bytes>");
    assert_eq!(label(&["ban", &"x".repeat(500)]), "ban <500 bytes>");
    let inline = Command::with_text(&["vcl.inline", "main_1"], "vcl 4.1;\n").unwrap();
    assert_eq!(inline.label(), "vcl.inline main_1 <9 bytes>");
}

proptest! {
    #[test]
    fn any_words_arrive(words in prop::collection::vec("[^\0]{1,12}", 1..6)) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        if let Ok(command) = Command::words(&words) {
            prop_assert_eq!(read(&command), words);
        }
    }

    #[test]
    fn any_text_arrives(text in "([^\0]|END_OF_TEXT_[0-3]|END|\n){0,20}") {
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        let command = Command::with_text(&["vcl.inline", "x"], &text).unwrap();
        prop_assert_eq!(read(&command).pop().unwrap(), format!("{text}{newline}"));
    }
}
