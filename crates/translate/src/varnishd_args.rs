//! The user's own arguments for varnishd: those that would break the gateway are refused, the rest is kept.
//!
//! They are read as varnishd's getopt reads them: `-p name=value` and `-pname=value` are the same, and `-dC` is two
//! options. So nothing refused can hide behind another spelling.

use std::fmt;

/// Options with a value, out of `varnishd -x optstring` of all versions that we run (-E came after 7.1).
const WITH_VALUE: &str = "abEfhIijlMnPprSsTtWx";
/// Options without.
const WITHOUT_VALUE: &str = "CdFV?";

/// Options that belong to the gateway, and why.
const REFUSED: [(char, &str); 15] = [
    ('a', "listeners come from the Gateway's spec.listeners"),
    ('b', "backends come from routes"),
    ('C', "varnishd would print C code and exit"),
    ('d', "varnishd would wait for commands on its standard input"),
    ('F', "the gateway decides how varnishd runs"),
    ('f', "VCL comes from userVCLConfigMapRef"),
    ('I', "the gateway sends varnishd its commands itself"),
    ('j', "the gateway chooses the jail that fits where it runs"),
    ('M', "the gateway controls varnishd's command line"),
    ('n', "the gateway controls varnishd's working directory"),
    ('S', "the gateway controls varnishd's secret"),
    ('T', "the gateway controls varnishd's command line"),
    ('V', "varnishd would print its version and exit"),
    ('x', "varnishd would print documentation and exit"),
    ('?', "varnishd would print its usage and exit"),
];

/// Parameters (`-p`) that the gateway sets itself, and what to do instead.
const REFUSED_PARAMETERS: [(&str, &str); 3] = [
    ("vmod_path", "the gateway sets it to where its VMOD is"),
    ("auto_restart", "the gateway restarts varnishd's child itself"),
    ("pipe_timeout", "use timeouts.upgradeIdle for it"),
];

/// Arguments reach a pod in one environment variable.
const SEMICOLON: &str = "an argument must not hold a semicolon, which separates them in VARNISHD_EXTRA_ARGS";

const ONE_ELEMENT_EACH: &str = "each option and each value must be an element of its own";

/// One argument, with its value, that varnishd does not get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// As the user wrote it, elements separated by spaces.
    pub argument: String,
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is refused ({}): remove it", self.argument, self.why)
    }
}

/// Parts `args` (one element an argument, as in `execve`) into what varnishd gets and what it does not.
pub fn check<S: AsRef<str>>(args: &[S]) -> (Vec<String>, Vec<Refused>) {
    let mut kept = Vec::new();
    let mut refused = Vec::new();
    let mut rest = args.iter().map(AsRef::as_ref);
    while let Some(element) = rest.next() {
        let option = Element::read(element);
        // The value goes where its option goes: alone it would end varnishd ("too many arguments").
        let value = if option.wants_next { rest.next() } else { None };
        let fault =
            option.fault.map(str::to_owned).or_else(|| match (option.wants_next, value, option.value) {
                (true, None, _) => Some("its value is missing".to_owned()),
                (true, Some(value), _) | (false, _, Some(value)) => refused_parameter(option.last, value),
                (false, _, None) => None,
            });
        let separator = [Some(element), value].into_iter().flatten().any(|text| text.contains(';'));
        match fault.or_else(|| separator.then(|| SEMICOLON.to_owned())) {
            Some(why) => {
                let argument = value.map_or_else(|| element.to_owned(), |value| format!("{element} {value}"));
                refused.push(Refused { argument, why });
            }
            None => kept.extend([Some(element), value].into_iter().flatten().map(str::to_owned)),
        }
    }
    (kept, refused)
}

/// One element of argv where an option is expected.
struct Element<'a> {
    fault: Option<&'static str>,
    /// The last option letter in it, to which the value belongs.
    last: char,
    /// The value within the same element.
    value: Option<&'a str>,
    /// The value is the next element.
    wants_next: bool,
}

impl<'a> Element<'a> {
    fn read(element: &'a str) -> Self {
        let mut read = Self { fault: None, last: ' ', value: None, wants_next: false };
        let letters = match element.strip_prefix('-') {
            None | Some("" | "-") => {
                read.fault = Some(ONE_ELEMENT_EACH);
                return read;
            }
            Some(letters) => letters,
        };
        for (at, letter) in letters.char_indices() {
            read.last = letter;
            read.fault =
                read.fault.or_else(|| REFUSED.iter().find(|(l, _)| *l == letter).map(|(_, why)| *why));
            if WITH_VALUE.contains(letter) {
                let value = &letters[at + letter.len_utf8()..];
                if value.starts_with(char::is_whitespace) {
                    // `-p name=value` in one element: varnishd would look for a parameter with a blank in its name.
                    read.fault = read.fault.or(Some(ONE_ELEMENT_EACH));
                }
                read.wants_next = value.is_empty();
                read.value = (!value.is_empty()).then_some(value);
                return read;
            }
            if !WITHOUT_VALUE.contains(letter) {
                read.fault = read.fault.or(Some("varnishd has no such option"));
                return read;
            }
        }
        read
    }
}

fn refused_parameter(option: char, value: &str) -> Option<String> {
    // -r makes parameters read-only, also for the gateway.
    let names: Vec<&str> = match option {
        'p' => vec![value.split('=').next().unwrap_or(value)],
        'r' => value.split(',').collect(),
        _ => return None,
    };
    let refused = REFUSED_PARAMETERS.iter().find(|(name, _)| names.iter().any(|given| given.trim() == *name));
    refused.map(|(_, why)| (*why).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept, and the arguments that are refused.
    fn parts(args: &[&str]) -> (Vec<String>, Vec<String>) {
        let (kept, refused) = check(args);
        (kept, refused.into_iter().map(|r| r.argument).collect())
    }

    #[test]
    fn ordinary_arguments_stay_as_they_are() {
        let args = [
            "-p",
            "thread_pool_min=50",
            "-s",
            "malloc,256m",
            "-t120",
            "-hcritbit",
            "-i",
            "edge",
            "-E",
            "/x.so",
        ];
        assert_eq!(parts(&args), (args.map(str::to_owned).to_vec(), vec![]));
        assert_eq!(parts(&[]), (vec![], vec![]));
    }

    #[test]
    fn what_belongs_to_the_gateway_is_refused_with_its_value() {
        for (refused, value) in [
            ("-a", ":80"),
            ("-b", "none"),
            ("-f", "/etc/x.vcl"),
            ("-I", "/tmp/cli"),
            ("-j", "none"),
            ("-M", "localhost:1"),
            ("-n", "/tmp/x"),
            ("-S", "none"),
            ("-T", ":6082"),
            ("-x", "vsl"),
        ] {
            let kept = vec!["-t".to_owned(), "10".to_owned()];
            assert_eq!(
                parts(&["-t", "10", refused, value]),
                (kept.clone(), vec![format!("{refused} {value}")])
            );
            let glued = format!("{refused}{value}");
            assert_eq!(parts(&[&glued, "-t", "10"]), (kept, vec![glued.clone()]));
        }
        for refused in ["-C", "-d", "-F", "-V", "-?"] {
            assert_eq!(
                parts(&[refused, "-t", "10"]),
                (vec!["-t".into(), "10".into()], vec![refused.to_owned()])
            );
        }
    }

    #[test]
    fn nothing_refused_hides_behind_another_option() {
        assert_eq!(parts(&["-dn/tmp/x"]), (vec![], vec!["-dn/tmp/x".into()]));
        assert_eq!(
            parts(&["-Fn", "/tmp/x", "-t", "1"]),
            (vec!["-t".into(), "1".into()], vec!["-Fn /tmp/x".into()])
        );
        // The -n here is the value of -i.
        assert_eq!(parts(&["-i", "-n"]), (vec!["-i".into(), "-n".into()], vec![]));
    }

    #[test]
    fn parameters_that_the_gateway_sets_are_refused() {
        assert_eq!(parts(&["-p", "vmod_path=/x"]).1, ["-p vmod_path=/x"]);
        assert_eq!(parts(&["-pauto_restart=on"]).1, ["-pauto_restart=on"]);
        assert_eq!(parts(&["-r", "cc_command,vmod_path"]).1, ["-r cc_command,vmod_path"]);
        assert_eq!(
            check(&["-p", "pipe_timeout=60"]).1[0].to_string(),
            "`-p pipe_timeout=60` is refused (use timeouts.upgradeIdle for it): remove it"
        );
        assert_eq!(parts(&["-p", "vcl_path=/etc/varnish"]).1, [""; 0]);
    }

    #[test]
    fn what_varnishd_would_not_understand_is_refused() {
        assert_eq!(parts(&["stray", "-t", "10"]), (vec!["-t".into(), "10".into()], vec!["stray".into()]));
        assert_eq!(parts(&["-p thread_pool_min=50"]).1, ["-p thread_pool_min=50"]);
        assert_eq!(parts(&["--", "-t", "10"]).1, ["--"]);
        assert_eq!(parts(&["-", ""]).1, ["-", ""]);
        assert_eq!(parts(&["-Z"]).1, ["-Z"]);
        assert_eq!(
            parts(&["-p", "a=b;c", "-t", "10"]),
            (vec!["-t".into(), "10".into()], vec!["-p a=b;c".into()])
        );
        let (kept, refused) = check(&["-t", "10", "-p"]);
        assert_eq!(kept, ["-t", "10"]);
        assert_eq!(refused[0].to_string(), "`-p` is refused (its value is missing): remove it");
    }
}
