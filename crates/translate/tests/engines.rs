//! What engines read differently in VCL is found in every case of tests/engines. That engines do differ in these cases is shown
//! where engines are at hand: crates/ghost/tests/engines.rs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "whatever goes wrong here must fail the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use translate::vcl::engines::{DIFFERENCES, Engine, differences};

struct Case {
    file: String,
    text: String,
}

impl Case {
    fn header(&self, name: &str) -> &str {
        let prefix = format!("# {name}: ");
        self.text.lines().find_map(|line| line.strip_prefix(&prefix)).expect(&self.file)
    }
}

fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines");
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: &Path| Case {
        file: path.file_name().unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    paths.map(|path| read(&path)).collect()
}

#[test]
fn each_case_shows_its_difference_and_who_refuses_it() {
    for case in cases() {
        let found: BTreeSet<&str> = differences(&case.text).iter().map(|one| one.difference.name).collect();
        let expected = Some(case.header("difference")).filter(|name| *name != "none");
        assert_eq!(found, expected.into_iter().collect(), "{}", case.file);
        let compiles: Vec<&str> = case.header("compiles on").split(", ").collect();
        let difference = DIFFERENCES.iter().find(|one| Some(one.name) == expected);
        let refused_by = difference.map_or(&[][..], |one| one.refused_by);
        for engine in Engine::ALL {
            assert_eq!(refused_by.contains(&engine), !compiles.contains(&engine.version()), "{}", case.file);
        }
    }
}

#[test]
fn each_difference_has_a_case() {
    let cases = cases();
    for difference in DIFFERENCES {
        assert!(cases.iter().any(|case| case.header("difference") == difference.name), "{}", difference.name);
        assert!(!difference.refused_by.is_empty() || difference.meaning.is_some(), "{}", difference.name);
    }
}

#[test]
fn a_finding_names_line_engines_and_remedy() {
    let vcl = "sub vcl_recv {\n  set req.max_age = 1m;\n  unset req.http.Content-Length; set req.http.content-length = \"0\";\n}\nacl a {\n  \"10.0.0.0\"/8; \"10.0.0.0\"/8;\n  \"2001:db8::1\"; \"2001:db8::\"/32;\n}";
    let found: Vec<String> = differences(vcl).iter().map(ToString::to_string).collect();
    let joined = "9.0 joins the entries, with a warning; addresses match as before, the log (VCL_acl) names the joined entry; remove the inner entry, or write the joined one";
    assert_eq!(
        found,
        [
            "line 2: req.max_age: Varnish Cache 7.1 and Varnish Cache 7.7 refuse it; use `req.ttl`, which all three read".to_owned(),
            "line 3: req.http.Content-Length: Varnish Cache 7.7 and Vinyl Cache 9.0 refuse it; use `unset bereq.body;` to remove the body of a request".to_owned(),
            format!("line 6: 10.0.0.0: {joined}"),
            format!("line 7: 2001:db8::1: {joined}"),
        ]
    );
}

#[test]
fn the_docs_have_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/engines.md");
    let text = fs::read_to_string(&page).unwrap();
    let mut table = String::from("| VCL | 7.1 | 7.7 | 9.0 | |\n|---|---|---|---|---|\n");
    for one in DIFFERENCES {
        let word = |engine| if one.refused_by.contains(&engine) { "refuses it" } else { "compiles" };
        let [a, b, c] = Engine::ALL.map(word);
        let meaning = one.meaning.map(|meaning| format!("{meaning}; ")).unwrap_or_default();
        table.push_str(&format!("| {} | {a} | {b} | {c} | {meaning}{} |\n", one.vcl, one.instead));
    }
    let begin = "<!-- from crates/translate/src/vcl/engines.rs: `BLESS=1 cargo test --workspace --test engines` writes it -->\n\n";
    let start = text.find(begin).expect("the comment before the table") + begin.len();
    let end = text[start..].find("\n\n").map_or(text.len(), |at| start + at + 1);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&page, format!("{}{table}{}", &text[..start], &text[end..])).unwrap();
    } else {
        assert_eq!(&text[start..end], table, "run it with BLESS=1");
    }
}
