//! What is known about one property: name, type, default, what it accepts, how it may change, and whether Floodmark
//! acts on it. Knows no sources and no other property. Invariant: a definition's default passes its own validator.

use super::value::{Secret, Value};

/// The type of a property, as DescribeConfigs names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    Boolean,
    String,
    Int,
    Short,
    Long,
    Double,
    List,
    Class,
    Password,
}

impl ConfigType {
    /// The number that DescribeConfigs carries for this type; 0 stands for "unknown".
    pub fn id(self) -> i8 {
        match self {
            ConfigType::Boolean => 1,
            ConfigType::String => 2,
            ConfigType::Int => 3,
            ConfigType::Short => 4,
            ConfigType::Long => 5,
            ConfigType::Double => 6,
            ConfigType::List => 7,
            ConfigType::Class => 8,
            ConfigType::Password => 9,
        }
    }

    /// The word for this type in documentation.
    pub fn word(self) -> &'static str {
        match self {
            ConfigType::Boolean => "boolean",
            ConfigType::String => "string",
            ConfigType::Int => "int",
            ConfigType::Short => "short",
            ConfigType::Long => "long",
            ConfigType::Double => "double",
            ConfigType::List => "list",
            ConfigType::Class => "class",
            ConfigType::Password => "password",
        }
    }
}

/// What a property is worth when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// There is none: a node does not start without the property.
    Required,
    /// The property is unset.
    Null,
    /// The value as it would stand in a file.
    Text(&'static str),
}

/// How much a property matters to most users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    High,
    Medium,
    Low,
}

/// Whether and where a broker property can be changed while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// Only by a restart.
    ReadOnly,
    /// For one broker at a time.
    PerBroker,
    /// For one broker, or for all as the cluster's default.
    ClusterWide,
}

/// What Floodmark does with a property that a user sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Accepted so that Kafka's files work unchanged; the words say what happens instead.
    Accepted(&'static str),
}

/// The kind of thing that a property describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    Broker,
    Topic,
    Group,
    ClientMetrics,
}

/// The unit of a broker property that a topic property in milliseconds falls back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Same,
    Minutes,
    Hours,
}

/// A broker property that stands in for an unset topic or group property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: &'static str,
    pub unit: Unit,
}

/// What values a property accepts beyond those of its type.
#[derive(Clone, Copy, Debug)]
pub enum Validator {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    BetweenDoubles(f64, f64),
    OneOf(&'static [&'static str]),
    OneOfIgnoringCase(&'static [&'static str]),
    NonEmpty,
    NotNull,
    /// A list without empty entries; `of` empty allows any entry.
    List {
        empty: bool,
        null: bool,
        of: &'static [&'static str],
    },
    /// A rule of its own; `accepts` describes it in documentation.
    Rule {
        accepts: &'static str,
        check: fn(&Value) -> Result<(), String>,
    },
}

/// One property.
#[derive(Clone, Copy, Debug)]
pub struct ConfigDef {
    pub name: &'static str,
    pub kind: ConfigType,
    pub default: DefaultValue,
    pub validator: Validator,
    pub importance: Importance,
    pub dynamic: Dynamic,
    /// Left out of descriptions and documentation, as in Kafka.
    pub internal: bool,
    /// A property that Kafka does not have.
    pub ours: bool,
    pub support: Support,
    /// The broker properties that give the value when this one is unset; the first that is set wins.
    pub synonyms: &'static [Synonym],
    pub doc: &'static str,
}

const fn new(name: &'static str, kind: ConfigType, default: DefaultValue) -> ConfigDef {
    ConfigDef {
        name,
        kind,
        default,
        validator: Validator::Any,
        importance: Importance::Medium,
        dynamic: Dynamic::ReadOnly,
        internal: false,
        ours: false,
        support: Support::Honoured,
        synonyms: &[],
        doc: "",
    }
}

/// The starting points of a definition, one for each type; `default` is the text of a file.
macro_rules! starting_points {
    ($($function:ident $kind:ident),* $(,)?) => {
        $(pub(super) const fn $function(name: &'static str, default: &'static str) -> ConfigDef {
            new(name, ConfigType::$kind, DefaultValue::Text(default))
        })*
    };
}

starting_points! {
    boolean Boolean, int Int, long Long, short Short, double Double, string String, list List, class Class,
}

/// A password has no default.
pub(super) const fn password(name: &'static str) -> ConfigDef {
    new(name, ConfigType::Password, DefaultValue::Null)
}

pub(super) const fn same(name: &'static str) -> Synonym {
    Synonym { name, unit: Unit::Same }
}

pub(super) const fn minutes(name: &'static str) -> Synonym {
    Synonym { name, unit: Unit::Minutes }
}

pub(super) const fn hours(name: &'static str) -> Synonym {
    Synonym { name, unit: Unit::Hours }
}

/// The words of the table.
impl ConfigDef {
    pub(super) const fn required(mut self) -> Self {
        self.default = DefaultValue::Required;
        self
    }

    pub(super) const fn null(mut self) -> Self {
        self.default = DefaultValue::Null;
        self
    }

    pub(super) const fn at_least(mut self, min: i64) -> Self {
        self.validator = Validator::AtLeast(min);
        self
    }

    pub(super) const fn between(mut self, min: i64, max: i64) -> Self {
        self.validator = Validator::Between(min, max);
        self
    }

    pub(super) const fn between_doubles(mut self, min: f64, max: f64) -> Self {
        self.validator = Validator::BetweenDoubles(min, max);
        self
    }

    pub(super) const fn one_of(mut self, values: &'static [&'static str]) -> Self {
        self.validator = Validator::OneOf(values);
        self
    }

    pub(super) const fn one_of_ignoring_case(mut self, values: &'static [&'static str]) -> Self {
        self.validator = Validator::OneOfIgnoringCase(values);
        self
    }

    pub(super) const fn non_empty(mut self) -> Self {
        self.validator = Validator::NonEmpty;
        self
    }

    pub(super) const fn not_null(mut self) -> Self {
        self.validator = Validator::NotNull;
        self
    }

    /// A list that may be empty.
    pub(super) const fn any_list(mut self) -> Self {
        self.validator = Validator::List { empty: true, null: true, of: &[] };
        self
    }

    /// A list with at least one entry.
    pub(super) const fn filled_list(mut self) -> Self {
        self.validator = Validator::List { empty: false, null: true, of: &[] };
        self
    }

    /// A list of some of `values`, possibly none.
    pub(super) const fn list_of(mut self, values: &'static [&'static str]) -> Self {
        self.validator = Validator::List { empty: true, null: false, of: values };
        self
    }

    /// A list of some of `values`, at least one.
    pub(super) const fn filled_list_of(mut self, values: &'static [&'static str]) -> Self {
        self.validator = Validator::List { empty: false, null: false, of: values };
        self
    }

    pub(super) const fn rule(
        mut self,
        accepts: &'static str,
        check: fn(&Value) -> Result<(), String>,
    ) -> Self {
        self.validator = Validator::Rule { accepts, check };
        self
    }

    pub(super) const fn high(mut self) -> Self {
        self.importance = Importance::High;
        self
    }

    pub(super) const fn low(mut self) -> Self {
        self.importance = Importance::Low;
        self
    }

    pub(super) const fn per_broker(mut self) -> Self {
        self.dynamic = Dynamic::PerBroker;
        self
    }

    pub(super) const fn cluster_wide(mut self) -> Self {
        self.dynamic = Dynamic::ClusterWide;
        self
    }

    pub(super) const fn internal(mut self) -> Self {
        self.internal = true;
        self
    }

    pub(super) const fn ours(mut self) -> Self {
        self.ours = true;
        self
    }

    pub(super) const fn instead(mut self, words: &'static str) -> Self {
        self.support = Support::Accepted(words);
        self
    }

    pub(super) const fn or(mut self, synonyms: &'static [Synonym]) -> Self {
        self.synonyms = synonyms;
        self
    }

    pub(super) const fn doc(mut self, words: &'static str) -> Self {
        self.doc = words;
        self
    }
}

impl ConfigDef {
    /// Passwords are never shown.
    pub fn is_sensitive(&self) -> bool {
        self.kind == ConfigType::Password
    }

    /// The value that `text` stands for, or the reason why it is refused.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let mut value = parse_type(self.kind, text)?;
        if let (Value::List(entries), Validator::List { .. }) = (&mut value, self.validator) {
            drop_repeated(entries);
        }
        self.validator.check(&value)?;
        Ok(value)
    }

    /// The value that holds when nobody sets the property; `Null` for a required one.
    pub fn default_value(&self) -> Value {
        match self.default {
            DefaultValue::Required | DefaultValue::Null => Value::Null,
            DefaultValue::Text(text) => match parse_type(self.kind, text) {
                Ok(value) => value,
                Err(reason) => unreachable!("default of {}: {reason}", self.name),
            },
        }
    }

    /// The default as text, when there is one.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Text(text) => Some(text),
            DefaultValue::Required | DefaultValue::Null => None,
        }
    }
}

impl Validator {
    fn check(self, value: &Value) -> Result<(), String> {
        match self {
            Validator::Any => Ok(()),
            Validator::AtLeast(min) => at_least(value, min),
            Validator::Between(min, max) => at_least(value, min).and_then(|()| at_most(value, max)),
            Validator::BetweenDoubles(min, max) => match value {
                Value::Double(number) if (min..=max).contains(number) => Ok(()),
                _ => Err(format!("must be between {min} and {max}")),
            },
            Validator::OneOf(values) => match value {
                Value::Text(text) if values.contains(&text.as_str()) => Ok(()),
                _ => Err(format!("must be one of {}", values.join(", "))),
            },
            Validator::OneOfIgnoringCase(values) => match value {
                Value::Text(text) if values.iter().any(|known| known.eq_ignore_ascii_case(text)) => Ok(()),
                _ => Err(format!("must be one of {} (in upper or lower case)", values.join(", "))),
            },
            Validator::NonEmpty => match value {
                Value::Text(text) if text.is_empty() => Err("must not be empty".to_owned()),
                _ => Ok(()),
            },
            Validator::NotNull => match value {
                Value::Null => Err("must be set".to_owned()),
                _ => Ok(()),
            },
            Validator::List { empty, null, of } => check_list(value, empty, null, of),
            Validator::Rule { check, .. } => check(value),
        }
    }

    /// What is accepted, for documentation; `None` when the type says it all.
    pub fn accepts(self) -> Option<String> {
        Some(match self {
            Validator::Any | Validator::NotNull => return None,
            Validator::AtLeast(min) => format!("at least {min}"),
            Validator::Between(min, max) => format!("{min} to {max}"),
            Validator::BetweenDoubles(min, max) => format!("{min} to {max}"),
            Validator::OneOf(values) => format!("one of {}", values.join(", ")),
            Validator::OneOfIgnoringCase(values) => format!("one of {}, in any case", values.join(", ")),
            Validator::NonEmpty => "not empty".to_owned(),
            Validator::List { empty: true, of: [], .. } => return None,
            Validator::List { empty: false, of: [], .. } => "not empty".to_owned(),
            Validator::List { empty: true, of, .. } => format!("any of {}", of.join(", ")),
            Validator::List { empty: false, of, .. } => format!("at least one of {}", of.join(", ")),
            Validator::Rule { accepts, .. } => accepts.to_owned(),
        })
    }
}

fn at_least(value: &Value, min: i64) -> Result<(), String> {
    match value {
        Value::Integer(number) if *number >= min => Ok(()),
        _ => Err(format!("must be at least {min}")),
    }
}

fn at_most(value: &Value, max: i64) -> Result<(), String> {
    match value {
        Value::Integer(number) if *number <= max => Ok(()),
        _ => Err(format!("must be at most {max}")),
    }
}

fn check_list(value: &Value, empty: bool, null: bool, of: &[&str]) -> Result<(), String> {
    let Value::List(entries) = value else {
        return if null && *value == Value::Null { Ok(()) } else { Err("must be a list".to_owned()) };
    };
    if entries.is_empty() && !empty {
        return Err("must not be empty".to_owned());
    }
    if entries.iter().any(String::is_empty) {
        return Err("must not have an empty entry".to_owned());
    }
    match entries.iter().find(|entry| !of.is_empty() && !of.contains(&entry.as_str())) {
        Some(stranger) => Err(format!("'{stranger}' is not one of {}", of.join(", "))),
        None => Ok(()),
    }
}

fn parse_type(kind: ConfigType, text: &str) -> Result<Value, String> {
    let text = text.trim();
    match kind {
        ConfigType::Boolean if text.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
        ConfigType::Boolean if text.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
        ConfigType::Boolean => Err("must be true or false".to_owned()),
        ConfigType::Int => parse_integer(text, i32::MIN.into(), i32::MAX.into()),
        ConfigType::Short => parse_integer(text, i16::MIN.into(), i16::MAX.into()),
        ConfigType::Long => parse_integer(text, i64::MIN, i64::MAX),
        ConfigType::Double => parse_double(text),
        ConfigType::String | ConfigType::Class => Ok(Value::Text(text.to_owned())),
        ConfigType::Password => Ok(Value::Secret(Secret(text.to_owned()))),
        ConfigType::List if text.is_empty() => Ok(Value::List(Vec::new())),
        ConfigType::List => Ok(Value::List(text.split(',').map(|entry| entry.trim().to_owned()).collect())),
    }
}

fn parse_integer(text: &str, min: i64, max: i64) -> Result<Value, String> {
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(Value::Integer(number)),
        Ok(_) => Err(format!("must be between {min} and {max}")),
        Err(_) => Err("must be a whole number".to_owned()),
    }
}

fn parse_double(text: &str) -> Result<Value, String> {
    // Java reads a suffix for the kind of float, and only these spellings of what is no number.
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let starts_as_number =
        digits.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    match digits.parse::<f64>() {
        Ok(number) if starts_as_number => Ok(Value::Double(number)),
        _ => Err("must be a number".to_owned()),
    }
}

fn drop_repeated(entries: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    entries.retain(|entry| seen.insert(entry.clone()));
}
