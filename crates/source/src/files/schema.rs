//! The shape of an object: fields, types, defaults and limits, as the API server has them from a CRD.
//!
//! Fields and types come from the Rust types themselves (their `JsonSchema`), so they cannot drift from what is
//! deserialized. What the Rust types do not carry (defaults, limits, formats) is written beside them in
//! [`super::admission`], field by field.

mod check;
pub(crate) mod spelling;

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::ops::RangeInclusive;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub(crate) use check::{Violations, apply};

/// Says what a string must be (`must be …`) if it is not.
pub(crate) type Format = fn(&str) -> Result<(), &'static str>;

/// One value in an object.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    shape: Shape,
    default: Option<Value>,
    /// Strings that are allowed; empty: any.
    choices: Vec<String>,
    limits: Vec<Limit>,
}

#[derive(Debug, Clone)]
enum Shape {
    /// Anything goes.
    Any,
    Boolean,
    Integer(RangeInclusive<i64>),
    Number,
    String,
    /// Base64 in the manifest.
    Bytes,
    IntOrString,
    List(Box<Node>),
    Map(Box<Node>),
    Object {
        fields: BTreeMap<String, Node>,
        required: Vec<String>,
    },
}

#[derive(Debug, Clone)]
enum Limit {
    Items(RangeInclusive<usize>),
    /// In characters, as the API server counts.
    Length(RangeInclusive<usize>),
    Range(RangeInclusive<i64>),
    Between(RangeInclusive<f64>),
    OneOf(&'static [i64]),
    Format(Format),
    /// The entries of a map.
    Keys(Format),
    /// No two items of a list are the same in this field; in themselves, if it is empty.
    Unique(&'static str),
}

impl Node {
    /// The schema of an object of this type, with `apiVersion`, `kind` and `metadata`, and without `status`, which
    /// belongs to the controller.
    pub(crate) fn of_object<T: JsonSchema>() -> Self {
        let mut root = Self::of::<T>();
        if let Shape::Object { fields, required } = &mut root.shape {
            fields.remove("status");
            // kube's derive leaves the metadata out of the schema: the API server has its own.
            for name in ["apiVersion", "kind"] {
                fields.entry(name.to_owned()).or_insert_with(|| Self::new(Shape::String));
            }
            fields.entry("metadata".to_owned()).or_insert_with(Self::of::<ObjectMeta>);
            required.retain(|name| name != "metadata");
        }
        root
    }

    fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        Self::from_json(schema.as_value())
    }

    fn new(shape: Shape) -> Self {
        Self { shape, default: None, choices: Vec::new(), limits: Vec::new() }
    }

    fn from_json(schema: &Value) -> Self {
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return Self::new(Shape::IntOrString);
        }
        // A part of a Pod, for which our CRD has no complete schema.
        if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
            return Self::new(Shape::Any);
        }
        let types = schema.get("type");
        let names = |name: &str| match types {
            Some(Value::String(only)) => only == name,
            Some(Value::Array(several)) => several.iter().any(|one| one == name),
            _ => false,
        };
        let format = schema.get("format").and_then(Value::as_str);
        let shape = if names("object") {
            match (schema.get("properties"), schema.get("additionalProperties")) {
                (Some(Value::Object(properties)), _) => Shape::Object {
                    fields: properties
                        .iter()
                        .map(|(name, field)| (name.clone(), Self::from_json(field)))
                        .collect(),
                    required: strings(schema.get("required")),
                },
                (_, Some(values)) => Shape::Map(Box::new(Self::from_json(values))),
                _ => Shape::Any,
            }
        } else if names("array") {
            Shape::List(Box::new(schema.get("items").map_or_else(|| Self::new(Shape::Any), Self::from_json)))
        } else if names("string") {
            if format == Some("byte") { Shape::Bytes } else { Shape::String }
        } else if names("integer") {
            Shape::Integer(match format {
                Some("int32") => i64::from(i32::MIN)..=i64::from(i32::MAX),
                _ => i64::MIN..=i64::MAX,
            })
        } else if names("number") {
            Shape::Number
        } else if names("boolean") {
            Shape::Boolean
        } else {
            Shape::Any
        };
        let mut node = Self { choices: strings(schema.get("enum")), ..Self::new(shape) };
        if format == Some("date-time") {
            node.format(time);
        }
        node.take_bounds(schema);
        node
    }

    /// Limits that the type itself says, as ours do: the API server has them from there, too.
    fn take_bounds(&mut self, schema: &Value) {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| {
            schema.get(name).and_then(Value::as_u64).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
        };
        let counts = |least: &str, most: &str| match (count(least), count(most)) {
            (None, None) => None,
            (least, most) => Some(least.unwrap_or(0)..=most.unwrap_or(usize::MAX)),
        };
        match self.shape {
            Shape::Integer(_) | Shape::Number => {
                let (least, most) = (number("minimum"), number("maximum"));
                if least.is_some() || most.is_some() {
                    let bounds = least.unwrap_or(f64::NEG_INFINITY)..=most.unwrap_or(f64::INFINITY);
                    self.limit(Limit::Between(bounds));
                }
            }
            Shape::String => {
                if let Some(range) = counts("minLength", "maxLength") {
                    self.length(range);
                }
            }
            Shape::List(_) => {
                if let Some(range) = counts("minItems", "maxItems") {
                    self.items(range);
                }
            }
            _ => {}
        }
    }

    /// The node at a path such as `spec.rules[].matches[].path`, to say more about it. A path that the type does not
    /// have is a mistake in this crate; the test that builds all schemas finds it.
    pub(crate) fn at(&mut self, path: &str) -> &mut Self {
        let mut node = self;
        for step in path.split('.') {
            let (name, lists) =
                step.split_once("[]").map_or((step, 0), |(name, rest)| (name, 1 + rest.len() / 2));
            let Shape::Object { ref mut fields, .. } = node.shape else {
                debug_assert!(false, "{path}: `{name}` is asked of something that has no fields");
                return node;
            };
            debug_assert!(fields.contains_key(name), "{path}: there is no field `{name}`");
            node = fields.entry(name.to_owned()).or_insert_with(|| Self::new(Shape::Any));
            for _ in 0..lists {
                node = node.item();
            }
        }
        node
    }

    pub(crate) fn default(&mut self, value: impl Into<Value>) -> &mut Self {
        self.default = Some(value.into());
        self
    }

    pub(crate) fn choices(&mut self, choices: &[&str]) -> &mut Self {
        self.choices = choices.iter().map(|&choice| choice.to_owned()).collect();
        self
    }

    pub(crate) fn items(&mut self, range: RangeInclusive<usize>) -> &mut Self {
        self.limit(Limit::Items(range))
    }

    pub(crate) fn length(&mut self, range: RangeInclusive<usize>) -> &mut Self {
        self.limit(Limit::Length(range))
    }

    pub(crate) fn range(&mut self, range: RangeInclusive<i64>) -> &mut Self {
        self.limit(Limit::Range(range))
    }

    pub(crate) fn one_of(&mut self, values: &'static [i64]) -> &mut Self {
        self.limit(Limit::OneOf(values))
    }

    pub(crate) fn format(&mut self, format: Format) -> &mut Self {
        self.limit(Limit::Format(format))
    }

    pub(crate) fn keys(&mut self, format: Format) -> &mut Self {
        self.limit(Limit::Keys(format))
    }

    pub(crate) fn unique(&mut self, field: &'static str) -> &mut Self {
        self.limit(Limit::Unique(field))
    }

    /// What each item of a list is.
    pub(crate) fn item(&mut self) -> &mut Self {
        debug_assert!(matches!(self.shape, Shape::List(_)), "items are asked of what is no list");
        match self.shape {
            Shape::List(ref mut items) => items,
            _ => self,
        }
    }

    /// The values of a map.
    pub(crate) fn values(&mut self) -> &mut Self {
        debug_assert!(matches!(self.shape, Shape::Map(_)), "values are asked of what is no map");
        match self.shape {
            Shape::Map(ref mut values) => values,
            _ => self,
        }
    }

    /// A limit that is set here replaces that of the Rust type.
    fn limit(&mut self, limit: Limit) -> &mut Self {
        let counts = matches!(limit, Limit::Items(_) | Limit::Length(_));
        self.limits.retain(|other| {
            !(counts && discriminant(other) == discriminant(&limit)
                || matches!((&limit, other), (Limit::Range(_), Limit::Between(_))))
        });
        self.limits.push(limit);
        self
    }
}

fn time(text: &str) -> Result<(), &'static str> {
    text.parse::<Timestamp>().map(drop).map_err(|_| "must be a time such as `2026-01-31T12:00:00Z`")
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
