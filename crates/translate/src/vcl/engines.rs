//! What the cache engines read differently in VCL, found in the user's text.
//!
//! The engine that is installed compiles user VCL, and its result counts. This list is for the others: a Gateway that moves to
//! another engine should not be the first to notice. Each entry has cases in `tests/engines`, which are compiled by each engine
//! (`crates/ghost/tests/engines.rs`).

use std::fmt;
use std::net::IpAddr;

use super::tokens::{Kind, Token, tokens};

/// The engines that this project is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    Varnish71,
    Varnish77,
    Vinyl90,
}

use Engine::{Varnish71, Varnish77, Vinyl90};

impl Engine {
    pub const ALL: [Self; 3] = [Varnish71, Varnish77, Vinyl90];

    /// `7.1`
    pub const fn version(self) -> &'static str {
        match self {
            Varnish71 => "7.1",
            Varnish77 => "7.7",
            Vinyl90 => "9.0",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let product = if *self == Vinyl90 { "Vinyl Cache" } else { "Varnish Cache" };
        write!(f, "{product} {}", self.version())
    }
}

/// One thing that engines do not agree on.
#[derive(Debug)]
pub struct Difference {
    pub name: &'static str,
    /// As it is written in VCL, for the table in the docs.
    pub vcl: &'static str,
    /// Those whose compiler does not take it.
    pub refused_by: &'static [Engine],
    /// What it means where it is read differently, or is dangerous.
    pub meaning: Option<&'static str>,
    /// What works on all engines, or where there is none, what to do.
    pub instead: &'static str,
    is_at: fn(&Place<'_>) -> bool,
}

/// A place in the user's text where engines differ.
#[derive(Debug)]
pub struct Finding<'a> {
    /// Counted from 1.
    pub line: usize,
    pub text: &'a str,
    pub difference: &'static Difference,
}

impl fmt::Display for Finding<'_> {
    /// `line 3: std.real2integer: Vinyl Cache 9.0 refuses it; use std.integer(…)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { refused_by, meaning, instead, .. } = self.difference;
        write!(f, "line {}: {}: ", self.line, self.text)?;
        let names: Vec<String> = refused_by.iter().map(ToString::to_string).collect();
        match names.as_slice() {
            [] => {}
            [one] => write!(f, "{one} refuses it; ")?,
            more => write!(f, "{} refuse it; ", more.join(" and "))?,
        }
        if let Some(meaning) = meaning {
            write!(f, "{meaning}; ")?;
        }
        f.write_str(instead)
    }
}

/// Every place in the text, in its order. A difference is reported once for each line.
pub fn differences(text: &str) -> Vec<Finding<'_>> {
    let tokens = tokens(text);
    let mut found: Vec<Finding<'_>> = Vec::new();
    let mut context = Context::default();
    for (at, token) in tokens.iter().enumerate() {
        context.step(&tokens, at);
        let place = Place { tokens: &tokens, at, context: &context };
        for difference in DIFFERENCES.iter().filter(|difference| (difference.is_at)(&place)) {
            let is_same =
                |other: &Finding<'_>| other.line == token.line && std::ptr::eq(other.difference, difference);
            if !found.iter().rev().take_while(|other| other.line == token.line).any(is_same) {
                found.push(Finding { line: token.line, text: token.text, difference });
            }
        }
    }
    found
}

/// What surrounds a token.
#[derive(Debug, Default)]
struct Context<'a> {
    /// Name of the subroutine, or nothing outside of one.
    sub: Option<&'a str>,
    depth: usize,
    acl: Option<Acl>,
}

/// The entries of an ACL that engines may join: addresses that are not negated.
#[derive(Debug)]
struct Acl {
    end: usize,
    folds: bool,
    /// Token, network and its length.
    entries: Vec<(usize, IpAddr, u8)>,
}

impl<'a> Context<'a> {
    fn step(&mut self, tokens: &[Token<'a>], at: usize) {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
        if self.acl.as_ref().is_some_and(|acl| at > acl.end) {
            self.acl = None;
        }
        if tokens[at].kind == Kind::String {
            return;
        }
        match tokens[at].text {
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.sub = None;
                }
            }
            "sub" if self.depth == 0 => self.sub = Some(text(at + 1)),
            "acl" if self.depth == 0 => self.acl = Some(acl(tokens, at)),
            _ => {}
        }
    }
}

fn acl(tokens: &[Token<'_>], begin: usize) -> Acl {
    let position = |from: usize, text: &str| {
        tokens[from..]
            .iter()
            .position(|token| token.kind == Kind::Symbol && token.text == text)
            .map(|at| from + at)
    };
    let open = position(begin, "{").unwrap_or(tokens.len());
    let end = position(open.min(tokens.len()), "}").unwrap_or(tokens.len());
    let flags: Vec<&str> = tokens[begin..open].iter().map(|token| token.text).collect();
    let folds = !flags.windows(2).any(|pair| pair == ["-", "fold"]);
    let mut entries = Vec::new();
    for at in open..end {
        let text = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text);
        let is_negated = at > 0 && tokens[at - 1].text == "!";
        let Ok(address) = tokens[at].text.parse::<IpAddr>() else { continue };
        let full = if address.is_ipv4() { 32 } else { 128 };
        let length = if text(1) == "/" { text(2).parse().ok().filter(|n| *n <= full) } else { Some(full) };
        if let Some(length) = length.filter(|_| tokens[at].kind == Kind::String && !is_negated) {
            entries.push((at, address, length));
        }
    }
    Acl { end, folds, entries }
}

/// The first `length` bits, left aligned.
fn bits(address: IpAddr, length: u8) -> u128 {
    let all = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    all & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl Acl {
    /// Whether the entry lies in another one, or makes a larger network together with its other half.
    fn is_folded(&self, at: usize) -> bool {
        let Some(&(_, address, length)) = self.entries.iter().find(|entry| entry.0 == at) else {
            return false;
        };
        self.folds
            && self.entries.iter().any(|&(other, network, wide)| {
                let is_inside = wide <= length && bits(address, wide) == bits(network, wide);
                let is_half = wide == length
                    && length > 0
                    && bits(address, length - 1) == bits(network, length - 1)
                    && bits(address, length) != bits(network, length);
                // The other half of a pair is reported once, at its second entry.
                other != at
                    && network.is_ipv4() == address.is_ipv4()
                    && (is_inside && (wide < length || other < at) || is_half && other < at)
            })
    }
}

struct Place<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    context: &'a Context<'a>,
}

impl Place<'_> {
    fn ahead(&self, by: usize) -> &str {
        self.tokens.get(self.at + by).map_or("", |token| token.text)
    }

    fn ahead_is(&self, by: usize, kind: Kind) -> bool {
        self.tokens.get(self.at + by).is_some_and(|token| token.kind == kind)
    }

    fn before(&self, by: usize) -> &str {
        self.at.checked_sub(by).map_or("", |at| self.tokens[at].text)
    }

    fn name(&self) -> &str {
        let token = &self.tokens[self.at];
        if token.kind == Kind::Name { token.text } else { "" }
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name())
    }

    /// Names of headers are the same in any case.
    fn is_header(&self, of: &[&str], headers: &[&str]) -> bool {
        let Some((object, header)) = self.name().split_once(".http.") else { return false };
        of.contains(&object) && headers.iter().any(|one| header.eq_ignore_ascii_case(one))
    }

    /// A subroutine of the engine's own, in which a name is not there.
    fn is_in_other_than(&self, subs: &[&str]) -> bool {
        self.context.sub.is_some_and(|sub| sub.starts_with("vcl_") && !subs.contains(&sub))
    }

    fn is_in(&self, subs: &[&str]) -> bool {
        self.context.sub.is_some_and(|sub| subs.contains(&sub))
    }

    fn has_acl_flag(&self, flag: &str) -> bool {
        self.name() == flag && matches!(self.before(1), "+" | "-") && self.context.acl.is_some()
    }
}

const XIDS: &[&str] = &["req.xid", "bereq.xid", "sess.xid"];
const OBJECTS: &[&str] = &["req", "bereq", "beresp", "resp"];
const FRAMING: &[&str] = &["content-length", "transfer-encoding"];

/// In the order of the table in docs/operations/engines.md.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "storage-hint",
        vcl: "`beresp.storage_hint`",
        refused_by: &[Varnish71, Varnish77, Vinyl90],
        meaning: Some("7.1 and 7.7 take it after `vcl 4.0;` only, and user VCL is always read as 4.1"),
        instead: "use `set beresp.storage = storage.NAME;`",
        is_at: |place| place.is(&["beresp.storage_hint"]),
    },
    Difference {
        name: "std-conversions",
        vcl: "`std.real2integer()`, `std.real2time()`, `std.time2integer()`, `std.time2real()`",
        refused_by: &[Vinyl90],
        meaning: None,
        instead: "use `std.integer(real=std.round(…))`, `std.time(real=…)`, `std.integer(time=…)`, `std.real(time=…)`",
        is_at: |place| place.is(&["std.real2integer", "std.real2time", "std.time2integer", "std.time2real"]),
    },
    Difference {
        name: "cookie-format",
        vcl: "`cookie.format_rfc1123()`",
        refused_by: &[Vinyl90],
        meaning: None,
        instead: "use `cookie.format_date()`",
        is_at: |place| place.is(&["cookie.format_rfc1123"]),
    },
    Difference {
        name: "framing-headers",
        vcl: "`set` or `unset` of a `Content-Length` or `Transfer-Encoding` header",
        refused_by: &[Varnish77, Vinyl90],
        meaning: None,
        instead: "use `unset bereq.body;` to remove the body of a request",
        is_at: |place| matches!(place.before(1), "set" | "unset") && place.is_header(OBJECTS, FRAMING),
    },
    Difference {
        name: "hitmiss-scope",
        vcl: "`req.is_hitmiss` outside of vcl_miss, vcl_pass, vcl_deliver, vcl_synth",
        refused_by: &[Varnish77, Vinyl90],
        meaning: None,
        instead: "read it in these subroutines",
        is_at: |place| {
            place.is(&["req.is_hitmiss"])
                && place.is_in_other_than(&["vcl_miss", "vcl_pass", "vcl_deliver", "vcl_synth"])
        },
    },
    Difference {
        name: "hitpass-scope",
        vcl: "`req.is_hitpass` outside of vcl_pass, vcl_deliver, vcl_synth",
        refused_by: &[Varnish77, Vinyl90],
        meaning: None,
        instead: "read it in these subroutines",
        is_at: |place| {
            place.is(&["req.is_hitpass"]) && place.is_in_other_than(&["vcl_pass", "vcl_deliver", "vcl_synth"])
        },
    },
    Difference {
        name: "xid-is-a-string",
        vcl: "`req.xid`, `bereq.xid` or `sess.xid` compared with a string (`==`, `~`)",
        refused_by: &[Varnish77, Vinyl90],
        meaning: None,
        instead: "copy it into a header first, and compare that",
        is_at: |place| {
            place.is(XIDS)
                && matches!(place.ahead(1), "==" | "!=" | "~" | "!~")
                && place.ahead_is(2, Kind::String)
        },
    },
    Difference {
        name: "xid-is-a-number",
        vcl: "`req.xid`, `bereq.xid` or `sess.xid` compared with a number",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "copy it into a header first, and use `std.integer()`",
        is_at: |place| {
            place.is(XIDS)
                && matches!(place.ahead(1), "==" | "!=" | "<" | ">" | "<=" | ">=")
                && place.ahead_is(2, Kind::Number)
        },
    },
    Difference {
        name: "transit-buffer",
        vcl: "`beresp.transit_buffer`",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "leave it out: 7.1 has no transit buffer, and on 7.7 and 9.0 the gateway sets the parameter",
        is_at: |place| place.is(&["beresp.transit_buffer"]),
    },
    Difference {
        name: "variables-since-7.7",
        vcl: "`req.filters`, `bereq.filters`, `bereq.task_deadline`, `req.trace`, `bereq.trace`",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "leave it out where 7.1 has to read this VCL",
        is_at: |place| {
            place.is(&["req.filters", "bereq.filters", "bereq.task_deadline", "req.trace", "bereq.trace"])
        },
    },
    Difference {
        name: "unset-since-7.7",
        vcl: "`unset` of `req.grace`, `req.ttl`, `bereq.*_timeout`, `sess.*`",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "`set` the value that you need",
        is_at: |place| {
            let name = place.name();
            let is_timeout = name.starts_with("bereq.") && name.ends_with("_timeout");
            place.before(1) == "unset"
                && (place.is(&["req.grace", "req.ttl"]) || is_timeout || name.starts_with("sess."))
        },
    },
    Difference {
        name: "hash-in-synth",
        vcl: "`req.hash` in vcl_synth or vcl_pipe",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "read it in vcl_deliver",
        is_at: |place| place.is(&["req.hash"]) && place.is_in(&["vcl_synth", "vcl_pipe"]),
    },
    Difference {
        name: "functions-since-7.7",
        vcl: "`std.now()`, `std.timed_call()`, `import h2;`",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "leave it out where 7.1 has to read this VCL",
        is_at: |place| {
            place.is(&["std.now", "std.timed_call"]) || place.name() == "import" && place.ahead(1) == "h2"
        },
    },
    Difference {
        name: "fields-since-7.7",
        vcl: "`.via`, `.authority`, `.wait_limit`, `.wait_timeout` of a backend, `.expect_close` of a probe",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "leave it out where 7.1 has to read this VCL",
        is_at: |place| {
            place.is(&[".via", ".authority", ".wait_limit", ".wait_timeout", ".expect_close"])
                && place.ahead(1) == "="
        },
    },
    Difference {
        name: "acl-fold",
        vcl: "`acl NAME +fold`, `acl NAME -fold`",
        refused_by: &[Varnish71],
        meaning: None,
        instead: "leave the flag out, and write no entry inside of another",
        is_at: |place| place.has_acl_flag("fold") && place.ahead(1) != "(",
    },
    Difference {
        name: "acl-fold-report",
        vcl: "`acl NAME +fold(-report)`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "leave the flag out, and write no entry inside of another",
        is_at: |place| place.has_acl_flag("fold") && place.ahead(1) == "(",
    },
    Difference {
        name: "acl-entries-are-joined",
        vcl: "an ACL with an entry inside of another (`\"10.0.0.0\"/8; \"10.1.0.0\"/16;`) or beside its other half",
        refused_by: &[],
        meaning: Some(
            "9.0 joins the entries, with a warning; addresses match as before, the log (VCL_acl) names the joined entry",
        ),
        instead: "remove the inner entry, or write the joined one",
        is_at: |place| place.context.acl.as_ref().is_some_and(|acl| acl.is_folded(place.at)),
    },
    Difference {
        name: "max-age",
        vcl: "`req.max_age`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "use `req.ttl`, which all three read",
        is_at: |place| place.is(&["req.max_age"]),
    },
    Difference {
        name: "req-ttl",
        vcl: "`req.ttl`",
        refused_by: &[],
        meaning: Some(
            "all three read it; 9.0 calls it `req.max_age`, and a later version will remove the old name",
        ),
        instead: "keep it as long as 7.1 or 7.7 have to read this VCL",
        is_at: |place| place.is(&["req.ttl"]) && place.before(1) != "unset",
    },
    Difference {
        name: "refresh",
        vcl: "`vcl_backend_refresh`, `obj_stale.*`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "leave it out where 7.1 or 7.7 have to read this VCL",
        is_at: |place| {
            place.name().starts_with("obj_stale.")
                || place.name() == "vcl_backend_refresh" && matches!(place.before(1), "sub" | "call")
        },
    },
    Difference {
        name: "variables-since-9.0",
        vcl: "`param.*`, `bereq.retry_connect`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "leave it out where 7.1 or 7.7 have to read this VCL",
        is_at: |place| place.name().starts_with("param.") || place.is(&["bereq.retry_connect"]),
    },
    Difference {
        name: "functions-since-9.0",
        vcl: "`std.rfc_ttl()`, `import math;`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "leave it out where 7.1 or 7.7 have to read this VCL",
        is_at: |place| place.is(&["std.rfc_ttl"]) || place.name() == "import" && place.ahead(1) == "math",
    },
    Difference {
        name: "unused",
        vcl: "`unused NAME;`",
        refused_by: &[Varnish71, Varnish77],
        meaning: None,
        instead: "remove what is not used",
        is_at: |place| {
            place.name() == "unused"
                && place.ahead_is(1, Kind::Name)
                && matches!(place.before(1), "" | ";" | "}")
        },
    },
    Difference {
        name: "request-id",
        vcl: "`X-Varnish` header",
        refused_by: &[],
        meaning: Some("on 9.0 the engine's own header is `X-Vinyl`"),
        instead: "handle both names",
        is_at: |place| place.is_header(OBJECTS, &["x-varnish"]) || place.is_header(&["obj"], &["x-varnish"]),
    },
    Difference {
        name: "via",
        vcl: "`req.http.Via`",
        refused_by: &[],
        meaning: Some("7.7 and 9.0 add themselves to it before vcl_recv runs, 7.1 does not"),
        instead: "do not test whether it is there, but what it names",
        is_at: |place| place.is_header(&["req"], &["via"]),
    },
    Difference {
        name: "cookie-string",
        vcl: "`cookie.get_string()`",
        refused_by: &[],
        meaning: Some("7.1 ends the string with `;`, 7.7 and 9.0 do not"),
        instead: "remove the `;` with regsub() before you compare it",
        is_at: |place| place.is(&["cookie.get_string"]),
    },
    Difference {
        name: "upper-lower",
        vcl: "`.upper()`, `.lower()` of a string",
        refused_by: &[],
        meaning: Some(
            "7.1.1 and Vinyl Cache before 9.0.2 may write past the end of a buffer (CVE-2026-93894, VSV00020); fixed in Debian's 7.7.0-3+deb13u2",
        ),
        instead: "use `std.toupper()` and `std.tolower()`",
        is_at: |place| {
            place.ahead(1) == "(" && (place.name().ends_with(".upper") || place.name().ends_with(".lower"))
        },
    },
];
