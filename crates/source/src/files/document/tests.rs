use super::*;

fn texts(text: &str) -> Vec<(&str, u64)> {
    split(text).into_iter().map(|document| (document.text, document.lines_before)).collect()
}

#[test]
fn yaml_is_cut_at_its_markers() {
    assert_eq!(texts(""), []);
    assert_eq!(texts("# only a comment\n---\n\n---\n"), []);
    assert_eq!(texts("a: 1"), [("a: 1", 0)]);
    assert_eq!(texts("a: 1\n---\nb: 1\n"), [("a: 1\n", 0), ("---\nb: 1\n", 1)]);
    assert_eq!(
        texts("\u{feff}# x\n---\r\na: 1\r\n--- # y\r\nb: 1"),
        [("# x\n---\r\na: 1\r\n", 0), ("--- # y\r\nb: 1", 3)]
    );
    assert_eq!(
        texts("%YAML 1.2\n---\na: 1\n...\n# x\nb: 1\n"),
        [("%YAML 1.2\n---\na: 1\n", 0), ("# x\nb: 1\n", 4)]
    );
    assert_eq!(texts("--- {a: 1}\n--- {b: 1}\n"), [("--- {a: 1}\n", 0), ("--- {b: 1}\n", 1)]);
}

#[test]
fn what_only_looks_like_a_marker_is_none() {
    let text = "a: |\n  ---\n  x\nb: ----\n---x: 1\n....: 1\n";
    assert_eq!(texts(text), [(text, 0)]);
    let parsed = parse_yaml(split(text)[0]).unwrap();
    assert_eq!(parsed["a"], "---\nx\n");
}

#[test]
fn every_cut_document_parses_as_it_would_in_the_whole() {
    let text = "# first\n---\na: 1\n---\n# nothing\n---\nb: [1,\n 2]\n...\n---\nc: 'x\n\n  y'\n";
    let whole: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let cut: Vec<Value> = split(text).into_iter().map(|document| parse_yaml(document).unwrap()).collect();
    assert_eq!(cut, whole);
}
