//! Messages as JSON, in the shape of Kafka's own tools: fields in camel case, ids and bytes as base64, tagged fields only
//! when they are not at their default.

use super::codec::{At, Field, FieldReader, Struct, Value};
use anyhow::Result;
use serde_json::{Map, Value as Json};

pub(super) fn object<T: Struct>(message: &T, at: At) -> Result<Json> {
    let mut object = Object { at, fields: Map::new() };
    message.read_fields(&T::default(), &mut object)?;
    Ok(Json::Object(object.fields))
}

struct Object {
    at: At,
    fields: Map<String, Json>,
}

impl FieldReader for Object {
    fn at(&self) -> At {
        self.at
    }

    fn plain<T: Value>(&mut self, field: &Field, value: &T) -> Result<()> {
        self.fields.insert(camel_case(field.name()), value.to_json(self.at)?);
        Ok(())
    }

    fn tagged<T: Value>(&mut self, field: &Field, _tag: i32, value: &T) -> Result<()> {
        self.plain(field, value)
    }
}

fn camel_case(snake_case: &str) -> String {
    let mut words = snake_case.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

/// The bytes in base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for letter in 0..4 {
            let six = (bits >> (18 - 6 * letter)) & 63;
            text.push(if letter <= group.len() { ALPHABET[six as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{base64, camel_case};

    #[test]
    fn names_and_bytes() {
        assert_eq!(camel_case("is_migrating_zk_broker"), "isMigratingZkBroker");
        assert_eq!(["", "f", "fo", "foo"].map(|text| base64(text.as_bytes())), ["", "Zg==", "Zm8=", "Zm9v"]);
    }
}
