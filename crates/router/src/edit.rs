//! Filters as edits: decided here once, applied by the process that carries the request.

use model::filters::{Filters, Header, HeaderModifier};
use model::names::GHOST_PREFIX;

use crate::rewrite::Rewrite;
use crate::rule::Rule;

/// A header as it stands on the wire, `Name: value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderLine {
    line: Box<str>,
    name_length: usize,
}

impl HeaderLine {
    pub fn new(name: &str, value: &str) -> Self {
        Self { line: format!("{name}: {value}").into(), name_length: name.len() }
    }

    pub fn line(&self) -> &str {
        &self.line
    }

    pub fn name(&self) -> &str {
        &self.line[..self.name_length]
    }
}

/// A message whose headers can be edited.
pub trait EditHeaders {
    /// Removes every header of the name. Names compare without case.
    fn remove(&mut self, name: &str);
    /// Adds a header beside those of the same name.
    fn add(&mut self, header: &HeaderLine);
    /// Shows every value of a header to `seen`, until it answers true.
    fn any(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

/// A request on its way to an origin.
pub trait EditRequest: EditHeaders {
    fn set_host(&mut self, host: &str);
    fn set_url(&mut self, url: &[u8]);
}

/// A header modifier, ready to apply.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeaderEdits {
    set: Box<[HeaderLine]>,
    add: Box<[HeaderLine]>,
    remove: Box<[Box<str>]>,
}

impl HeaderEdits {
    pub(crate) fn new(from: Option<&HeaderModifier>) -> Self {
        let Some(from) = from else { return Self::default() };
        let lines = |headers: &[Header]| {
            headers.iter().filter(|h| editable(&h.name)).map(|h| HeaderLine::new(&h.name, &h.value)).collect()
        };
        Self {
            set: lines(&from.set),
            add: lines(&from.add),
            remove: from.remove.iter().filter(|name| editable(name)).map(|n| n.as_str().into()).collect(),
        }
    }

    fn apply(&self, to: &mut impl EditHeaders) {
        for header in &self.set {
            to.remove(header.name());
            to.add(header);
        }
        for header in &self.add {
            to.add(header);
        }
        for name in &self.remove {
            to.remove(name);
        }
    }
}

/// ghost's own headers are not a route's to edit.
fn editable(name: &str) -> bool {
    !name.get(..GHOST_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(GHOST_PREFIX))
}

/// The edits of the filters of a rule, or of a single backendRef.
#[derive(Debug, Clone)]
pub struct Edits {
    request_headers: HeaderEdits,
    response_headers: HeaderEdits,
    rewrite: Option<Rewrite>,
}

impl Edits {
    pub(crate) fn new(from: &Filters, prefix: Option<&str>) -> Self {
        Self {
            request_headers: HeaderEdits::new(from.request_header_modifier.as_ref()),
            response_headers: HeaderEdits::new(from.response_header_modifier.as_ref()),
            rewrite: from.url_rewrite.as_ref().map(|rewrite| Rewrite::new(rewrite, prefix)),
        }
    }

    /// Those of a backendRef after those of its rule. `url` is the client's.
    pub fn edit_request(&self, url: &[u8], to: &mut impl EditRequest) {
        if let Some(rewrite) = &self.rewrite {
            rewrite.apply(url, to);
        }
        self.request_headers.apply(to);
    }

    /// Those of a backendRef before those of its rule.
    pub fn edit_response(&self, to: &mut impl EditHeaders) {
        self.response_headers.apply(to);
    }
}

impl Rule {
    /// Do its filters change requests or responses?
    pub fn has_edits(&self) -> bool {
        self.edits.is_some()
    }

    /// What the origin is to see instead of what the client sent.
    pub fn edit_request(&self, url: &[u8], to: &mut impl EditRequest) {
        if let Some(edits) = &self.edits {
            edits.edit_request(url, to);
        }
    }

    /// What the client is to see instead of what the origin answered.
    pub fn edit_response(&self, to: &mut impl EditHeaders) {
        if let Some(edits) = &self.edits {
            edits.edit_response(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Headers(Vec<String>);

    impl EditHeaders for Headers {
        fn remove(&mut self, name: &str) {
            self.0.retain(|h| !h.split(':').next().unwrap().eq_ignore_ascii_case(name));
        }
        fn add(&mut self, header: &HeaderLine) {
            self.0.push(header.line().to_owned());
        }
        fn any(&self, _: &str, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
            false
        }
    }

    #[test]
    fn set_replaces_add_appends_remove_takes_all() {
        let header = |name: &str, value: &str| Header { name: name.into(), value: value.into() };
        let edits = HeaderEdits::new(Some(&HeaderModifier {
            set: vec![header("X-Set", "new"), header("x-ghost-pass", "spoofed")],
            add: vec![header("X-Add", "second")],
            remove: vec!["x-gone".into(), "X-Ghost-Pass".into()],
        }));
        let mut to = Headers(
            ["x-set: old", "X-Add: first", "X-Gone: a", "x-gone: b", "X-Ghost-Pass: 1"]
                .map(String::from)
                .into(),
        );
        edits.apply(&mut to);
        assert_eq!(to.0, ["X-Add: first", "X-Ghost-Pass: 1", "X-Set: new", "X-Add: second"]);
    }
}
