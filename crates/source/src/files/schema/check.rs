//! Walks a value along its schema: drops nulls, fills in defaults, and notes everything that does not fit.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Limit, Node, Shape, spelling};

/// What is wrong with one object, sentence by sentence.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    sentences: Vec<String>,
    /// Values must not be shown.
    secret: bool,
}

impl Violations {
    pub(crate) fn new(secret: bool) -> Self {
        Self { sentences: Vec::new(), secret }
    }

    /// `spec.rules[0].name must …`
    pub(crate) fn add(&mut self, path: &str, what: impl std::fmt::Display) {
        self.sentences.push(format!("{path} {what}"));
    }

    /// `spec.rules[0].name "X" must …`, without the value where it is a secret.
    pub(crate) fn add_value(&mut self, path: &str, value: impl Into<Value>, what: impl std::fmt::Display) {
        if self.secret {
            self.add(path, what);
        } else {
            let mut shown = value.into().to_string();
            if let Some((cut, _)) = shown.char_indices().nth(80) {
                shown.truncate(cut);
                shown.push('…');
            }
            self.sentences.push(format!("{path} {shown} {what}"));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sentences.is_empty()
    }

    /// All of them in one line; a wholly wrong object does not fill the screen.
    pub(crate) fn into_message(self) -> String {
        const SHOWN: usize = 5;
        let mut message = String::new();
        for (number, sentence) in self.sentences.iter().take(SHOWN).enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            let _ = write!(message, "{separator}{sentence}");
        }
        if let Some(more @ 1..) = self.sentences.len().checked_sub(SHOWN) {
            let _ = write!(message, "; and {more} more");
        }
        message
    }
}

/// Checks the fields of the object against its schema, and gives those that are absent their default.
pub(crate) fn apply(schema: &Node, object: &mut Value, violations: &mut Violations) {
    Walk { path: String::new(), violations }.node(schema, object);
}

struct Walk<'a> {
    path: String,
    violations: &'a mut Violations,
}

impl Walk<'_> {
    fn within(&mut self, step: std::fmt::Arguments<'_>, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let _ = self.path.write_fmt(step);
        walk(self);
        self.path.truncate(length);
    }

    fn field(&mut self, name: &str, walk: impl FnOnce(&mut Self)) {
        let dot = if self.path.is_empty() { "" } else { "." };
        // Map keys such as `tls.crt` would read as two fields.
        if name.contains(['.', '/', '[']) {
            self.within(format_args!("[{name:?}]"), walk);
        } else {
            self.within(format_args!("{dot}{name}"), walk);
        }
    }

    fn node(&mut self, node: &Node, value: &mut Value) {
        if !self.has_type(node, value) {
            return;
        }
        match (&node.shape, value) {
            (Shape::Object { fields, required }, Value::Object(object)) => {
                self.object(fields, required, object);
            }
            (Shape::Map(values), Value::Object(map)) => {
                map.retain(|_, value| !value.is_null());
                for (key, value) in map.iter_mut() {
                    self.field(key, |walk| walk.node(values, value));
                }
                self.limits(node, &Value::Null, Some(map));
            }
            (Shape::List(items), list) => {
                for (index, item) in list.as_array_mut().into_iter().flatten().enumerate() {
                    self.within(format_args!("[{index}]"), |walk| walk.node(items, item));
                }
                self.limits(node, list, None);
            }
            (Shape::Bytes, Value::String(text)) => {
                // Base64 folded into lines is common in manifests, and the API server's decoder skips the breaks.
                text.retain(|c| !matches!(c, '\r' | '\n'));
                if !is_base64(text) {
                    self.violations
                        .add(&self.path, "is not base64; encode it with `base64 -w0`, or use stringData");
                }
            }
            (_, scalar) => self.limits(node, scalar, None),
        }
    }

    fn object(
        &mut self,
        fields: &std::collections::BTreeMap<String, Node>,
        required: &[String],
        object: &mut Map<String, Value>,
    ) {
        object.retain(|_, value| !value.is_null());
        for (name, field) in fields {
            if let Some(default) = &field.default
                && !object.contains_key(name)
            {
                object.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in object.iter_mut() {
            match fields.get(name) {
                Some(field) => self.field(name, |walk| walk.node(field, value)),
                None => self.field(name, |walk| {
                    let guess = spelling::closest(name, fields.keys());
                    match guess {
                        Some(guess) => {
                            let what = format_args!("is an unknown field (did you mean `{guess}`?)");
                            walk.violations.add(&walk.path, what);
                        }
                        None => walk.violations.add(&walk.path, "is an unknown field; remove it"),
                    }
                }),
            }
        }
        for name in required {
            if !object.contains_key(name) {
                self.field(name, |walk| walk.violations.add(&walk.path, "is missing; it is required"));
            }
        }
    }

    fn has_type(&mut self, node: &Node, value: &Value) -> bool {
        let (fits, wanted) = match &node.shape {
            Shape::Any => return true,
            Shape::Boolean => (value.is_boolean(), "true or false"),
            Shape::Integer(_) => (value.is_i64() || value.is_u64(), "a whole number"),
            Shape::Number => (value.is_number(), "a number"),
            Shape::String | Shape::Bytes => (value.is_string(), "a string"),
            Shape::IntOrString => (value.is_string() || value.is_i64(), "a number or a name"),
            Shape::List(_) => (value.is_array(), "a list"),
            Shape::Map(_) | Shape::Object { .. } => (value.is_object(), "a mapping"),
        };
        if !fits {
            let remedy = match (&node.shape, value) {
                (Shape::String, Value::Bool(_)) => {
                    " (as YAML reads y, yes, on, n, no and off); put quotes round it"
                }
                (Shape::String, Value::Number(_)) => "; put quotes round it",
                (Shape::Integer(_) | Shape::Boolean, Value::String(_)) => "; write it without quotes",
                (Shape::List(_), Value::Object(_)) => "; begin each item with `- `",
                _ => "",
            };
            let found = match value {
                Value::Null => "nothing",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                Value::Array(_) => "a list",
                Value::Object(_) => "a mapping",
            };
            self.violations.add(&self.path, format_args!("must be {wanted}, not {found}{remedy}"));
        }
        fits
    }

    fn limits(&mut self, node: &Node, value: &Value, map: Option<&Map<String, Value>>) {
        if let (Value::String(text), false) = (value, node.choices.is_empty())
            && !node.choices.contains(text)
        {
            let choices = node.choices.join(", ");
            let remedy = spelling::closest(text, node.choices.iter())
                .map_or_else(String::new, |guess| format!(" (did you mean {guess}?)"));
            self.violations.add_value(
                &self.path,
                text.as_str(),
                format_args!("must be one of {choices}{remedy}"),
            );
        }
        if let (Shape::Integer(bounds), Some(number)) = (&node.shape, value.as_number())
            && !number.as_i64().is_some_and(|number| bounds.contains(&number))
        {
            let (least, most) = bounds.clone().into_inner();
            self.violations.add_value(
                &self.path,
                number.clone(),
                format_args!("must be between {least} and {most}"),
            );
            return;
        }
        let said = self.violations.sentences.len();
        for limit in &node.limits {
            self.limit(limit, value, map);
            // An empty name has the wrong form, too: one sentence is enough.
            if self.violations.sentences.len() > said {
                return;
            }
        }
    }

    fn limit(&mut self, limit: &Limit, value: &Value, map: Option<&Map<String, Value>>) {
        let path = &self.path;
        match (limit, value, map) {
            (Limit::Items(range), Value::Array(items), _) => self.count(range, items.len()),
            (Limit::Items(range), _, Some(map)) => self.count(range, map.len()),
            (Limit::Length(range), Value::String(text), _) => {
                let length = text.chars().count();
                if length < *range.start() && length == 0 {
                    self.violations.add(path, "must not be empty");
                } else if !range.contains(&length) {
                    let (least, most) = (range.start(), range.end());
                    let what =
                        format_args!("has {length} characters; between {least} and {most} are allowed");
                    self.violations.add(path, what);
                }
            }
            (Limit::Range(range), Value::Number(number), _)
                if !number.as_i64().is_some_and(|number| range.contains(&number)) =>
            {
                let (least, most) = (range.start(), range.end());
                let what = format_args!("must be between {least} and {most}");
                self.violations.add_value(path, number.clone(), what);
            }
            (Limit::Between(range), Value::Number(number), _)
                if !number.as_f64().is_some_and(|number| range.contains(&number)) =>
            {
                let (least, most) = (range.start(), range.end());
                let what = match (least.is_finite(), most.is_finite()) {
                    (true, false) => format!("must be {least} or more"),
                    (false, true) => format!("must be {most} or less"),
                    _ => format!("must be between {least} and {most}"),
                };
                self.violations.add_value(path, number.clone(), what);
            }
            (Limit::OneOf(values), Value::Number(number), _)
                if !number.as_i64().is_some_and(|number| values.contains(&number)) =>
            {
                let values = values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
                self.violations.add_value(path, number.clone(), format_args!("must be one of {values}"));
            }
            (Limit::Format(format), Value::String(text), _) => {
                if let Err(what) = format(text) {
                    self.violations.add_value(path, text.as_str(), what);
                }
            }
            (Limit::Keys(format), _, Some(map)) => {
                for key in map.keys() {
                    if let Err(what) = format(key) {
                        self.violations.add(path, format_args!("has the key {key:?}, which {what}"));
                    }
                }
            }
            (Limit::Unique(field), Value::Array(items), _) => self.unique(field, items),
            _ => {}
        }
    }

    fn count(&mut self, range: &std::ops::RangeInclusive<usize>, count: usize) {
        let (least, most) = (range.start(), range.end());
        if count < *least && count == 0 {
            self.violations.add(&self.path, "must not be empty");
        } else if !range.contains(&count) {
            let what = format_args!("has {count} entries; between {least} and {most} are allowed");
            self.violations.add(&self.path, what);
        }
    }

    fn unique(&mut self, field: &str, items: &[Value]) {
        let key = |item: &Value| if field.is_empty() { Some(item.clone()) } else { item.get(field).cloned() };
        for (index, item) in items.iter().enumerate() {
            let Some(value) = key(item) else { continue };
            if items[..index].iter().any(|earlier| key(earlier).as_ref() == Some(&value)) {
                let dot = if field.is_empty() { "" } else { "." };
                let path = format!("{}[{index}]{dot}{field}", self.path);
                let what = "is there twice; each may be given only once";
                self.violations.add_value(&path, value, what);
            }
        }
    }
}

/// Standard alphabet, padded.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}
