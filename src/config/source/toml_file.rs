//! Settings in TOML: quoted dotted keys (`"log.retention.ms" = 1000`) or nested tables (`[log]`). Knows no property.
//! Invariant: a table's path and a dotted key give the same property.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Line;

/// The settings of `text` with the line of each; or the line and the reason why it cannot be read.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, (u32, String)> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_at(text, span.start));
        (line, format!("is not TOML: {}{}", error.message(), quoting_hint(error.message())))
    })?;
    let mut settings = Vec::new();
    flatten(text, "", table.get_ref(), &mut settings)?;
    settings.sort_by_key(|(_, _, line)| *line);
    Ok(settings)
}

/// A property and one whose name goes on behind it (`max.connections`, `max.connections.per.ip`) cannot both be bare.
fn quoting_hint(message: &str) -> &'static str {
    if message.contains("dotted key") || message.contains("duplicate key") {
        " (where one property's name begins another's, put both in quotes)"
    } else {
        ""
    }
}

fn line_at(text: &str, offset: usize) -> u32 {
    let newlines = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    u32::try_from(newlines + 1).unwrap_or(u32::MAX)
}

fn flatten(
    text: &str,
    path: &str,
    table: &DeTable<'_>,
    settings: &mut Vec<Line>,
) -> Result<(), (u32, String)> {
    for (key, value) in table {
        let name =
            if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) => flatten(text, &name, inner, settings)?,
            _ => {
                let line = line_at(text, key.span().start);
                let value = scalar_or_list(value).map_err(|what| (line, format!("{name}: {what}")))?;
                settings.push((name, value, line));
            }
        }
    }
    Ok(())
}

fn scalar_or_list(value: &Spanned<DeValue<'_>>) -> Result<String, &'static str> {
    match value.get_ref() {
        DeValue::Array(entries) => {
            let entries: Result<Vec<String>, _> = entries.iter().map(scalar).collect();
            Ok(entries?.join(","))
        }
        _ => scalar(value),
    }
}

fn scalar(value: &Spanned<DeValue<'_>>) -> Result<String, &'static str> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(value) => Ok(value.to_string()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "is too large a number"),
        DeValue::Datetime(_) => Err("no property is a date"),
        DeValue::Array(_) | DeValue::Table(_) => Err("a list may hold only texts, numbers and booleans"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quoted_keys_and_tables_are_the_same() {
        let quoted = parse("\"log.retention.ms\" = 1000\n\"log.cleanup.policy\" = \"delete\"\n").unwrap();
        let nested = parse("[log]\nretention.ms = 1_000\n[log.cleanup]\npolicy = 'delete'\n").unwrap();
        let bare = |settings: Vec<(String, String, u32)>| -> Vec<(String, String)> {
            settings.into_iter().map(|(key, value, _)| (key, value)).collect()
        };
        assert_eq!(bare(quoted), bare(nested));
    }

    #[test]
    fn values_become_the_text_of_a_properties_file() {
        let text = "a = true\nb = 0x10\nc = 0.5\nd = ['x', 2]\n\n# comment\ne = []\nf = 1e-4\n";
        let values: Vec<_> = parse(text).unwrap();
        let expected = [
            ("a", "true", 1),
            ("b", "16", 2),
            ("c", "0.5", 3),
            ("d", "x,2", 4),
            ("e", "", 7),
            ("f", "1e-4", 8),
        ];
        for ((key, value, line), (expected_key, expected_value, expected_line)) in values.iter().zip(expected)
        {
            assert_eq!((key.as_str(), value.as_str(), *line), (expected_key, expected_value, expected_line));
        }
        assert_eq!(values.len(), expected.len());
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        assert_eq!(parse("a = 1\nb = \n").unwrap_err().0, 2);
        assert_eq!(
            parse("a = 1\n[b]\nc = 2020-01-01\n").unwrap_err(),
            (3, "b.c: no property is a date".to_owned())
        );
        assert_eq!(parse("a = [[1]]").unwrap_err().0, 1);
        let (line, reason) = parse("max.connections = 1\nmax.connections.per.ip = 2\n").unwrap_err();
        assert_eq!(line, 2, "{reason}");
        assert!(reason.contains("quotes"), "{reason}");
        assert!(parse("\"max.connections\" = 1\n\"max.connections.per.ip\" = 2\n").is_ok());
    }
}
