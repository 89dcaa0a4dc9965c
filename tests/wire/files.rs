//! The files with golden messages: what Kafka's own classes wrote (see compat-tests/golden).

use bytes::Bytes;
use floodmark::wire::api::ApiRow;
use std::fs;
use std::path::{Path, PathBuf};

pub const REGENERATE: &str = "run compat-tests/golden/regenerate (see the README there)";

/// One of the two forms in which each message is there.
pub const VARIANTS: [&str; 2] = ["", ".nulls"];

pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

fn snake_case(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// The file with the bytes of a message, below the directory.
#[allow(dead_code, reason = "the tests of the wire alone write files")]
pub fn hex_file(row: &ApiRow, version: i16, kind: &str, variant: &str) -> String {
    file_name(row, version, kind, variant, "hex")
}

fn file_name(row: &ApiRow, version: i16, kind: &str, variant: &str, extension: &str) -> String {
    format!("{}/v{version}.{kind}{variant}.{extension}", snake_case(row.name))
}

pub fn read(row: &ApiRow, version: i16, kind: &str, variant: &str, extension: &str) -> String {
    let file = file_name(row, version, kind, variant, extension);
    fs::read_to_string(directory().join(&file))
        .unwrap_or_else(|error| panic!("{file}: {error}; {REGENERATE}"))
}

/// The bytes of a message, as Kafka writes it.
pub fn bytes(row: &ApiRow, version: i16, kind: &str, variant: &str) -> Bytes {
    let text: String = read(row, version, kind, variant, "hex").split_whitespace().collect();
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
