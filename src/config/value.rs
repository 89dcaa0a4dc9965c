//! The value of a property, and its text as Kafka prints it. Knows no property. Invariant: the text of a value parses
//! back to the same value.

use std::fmt;

/// A value that has the type of its property.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The property is unset.
    Null,
    Boolean(bool),
    /// An int, short or long.
    Integer(i64),
    Double(f64),
    /// A string, or the name of a class.
    Text(String),
    List(Vec<String>),
    Secret(Secret),
}

/// A password. Nothing prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl Value {
    /// The text that Kafka shows for this value; `None` for an unset one and for a password.
    pub fn text(&self) -> Option<String> {
        match self {
            Value::Null | Value::Secret(_) => None,
            Value::Boolean(value) => Some(value.to_string()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Double(value) => Some(java_double(*value)),
            Value::Text(value) => Some(value.clone()),
            Value::List(entries) => Some(entries.join(",")),
        }
    }
}

/// `number` as Java's `Double.toString` writes it: plain from a thousandth up to ten million, else with an exponent, and
/// always with a digit after the point.
fn java_double(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN".to_owned()
        } else {
            format!("{number}").replace("inf", "Infinity")
        };
    }
    let magnitude = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{number:?}");
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => scientific,
    }
}

/// A type that a field of a typed configuration may have.
pub(super) trait FromValue: Sized {
    /// The field's value; `None` when `value` has another type, which means that table and field disagree.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! integers {
    ($($int:ty),*) => {
        $(impl FromValue for $int {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::Integer(number) => <$int>::try_from(*number).ok(),
                    _ => None,
                }
            }
        })*
    };
}

integers!(i16, i32, i64, u32, u64, usize);

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(*value),
            _ => None,
        }
    }
}

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Double(value) => Some(*value),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::List(entries) => Some(entries.clone()),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, Value};

    #[test]
    fn doubles_print_as_in_java() {
        let cases = [
            (0.5, "0.5"),
            (0.05, "0.05"),
            (0.001, "0.001"),
            (1.0e-4, "1.0E-4"),
            (1.25e-5, "1.25E-5"),
            (0.0, "0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (9_999_999.0, "9999999.0"),
            (1.0e7, "1.0E7"),
            (-2.5e10, "-2.5E10"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::INFINITY, "Infinity"),
        ];
        for (number, text) in cases {
            assert_eq!(Value::Double(number).text().as_deref(), Some(text));
        }
    }

    #[test]
    fn a_secret_prints_nowhere() {
        let secret = Value::Secret(Secret("sesame".to_owned()));
        assert_eq!(secret.text(), None);
        assert_eq!(format!("{secret:?}"), "Secret([hidden])");
    }
}
