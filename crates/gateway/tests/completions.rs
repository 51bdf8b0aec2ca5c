//! Shell completions.

use std::process::Command;

use crate::support::Program;

#[test]
fn completions_are_scripts() {
    for (shell, part) in
        [("bash", "complete -F"), ("zsh", "#compdef"), ("fish", "complete -c varnish-gateway")]
    {
        let output = Program::command().args(["completions", shell]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(part) && text.contains("status"), "{shell}");
    }
    assert_eq!(Program::command().args(["completions", "nothing"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn bash_completes_options_of_subcommands() {
    let script = Program::command().args(["completions", "bash"]).output().unwrap().stdout;
    let script = String::from_utf8(script).unwrap();
    for (words, at, expected) in [
        ("status --out", 2, "--output"),
        ("status --output ''", 3, "json"),
        ("completions ''", 2, "zsh"),
        ("access-log --help", 2, "--help"),
    ] {
        let ask = format!(
            "{script}\nCOMP_WORDS=(varnish-gateway {words}); COMP_CWORD={at}\n\
             _varnish__gateway varnish-gateway \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$COMP_CWORD-1]}}\"\n\
             echo \"${{COMPREPLY[@]}}\""
        );
        let bash = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        let offered = String::from_utf8_lossy(&bash.stdout);
        assert!(offered.split_whitespace().any(|word| word == expected), "{words}: {offered}");
    }
}
