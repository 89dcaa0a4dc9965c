//! The common form of Kafka's checkpoint files: a version line, a line with the number of entries, one line per entry.

use std::fmt::{Display, Write};
use std::io;
use std::path::Path;

use super::malformed;
use crate::storage::disk::{Disk, read_file, write_file_atomically};

const VERSION: &str = "0";

/// Writes one line per entry.
pub fn write<T: Display>(
    disk: &dyn Disk,
    path: &Path,
    entries: impl ExactSizeIterator<Item = T>,
) -> io::Result<()> {
    let mut text = String::with_capacity(16 + entries.len() * 32);
    let _ = write!(text, "{VERSION}\n{}\n", entries.len());
    for entry in entries {
        let _ = writeln!(text, "{entry}");
    }
    write_file_atomically(disk, path, text.as_bytes())
}

/// Reads the entries; `parse` gets the words of a line. A file that is missing or empty has none: Kafka makes these files
/// empty before it first writes them.
pub fn read<T>(disk: &dyn Disk, path: &Path, parse: impl Fn(&[&str]) -> Option<T>) -> io::Result<Vec<T>> {
    let bytes = match read_file(disk, path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    parse_lines(&bytes, parse).map_err(|what| malformed(format!("{}: {what}", path.display())))
}

fn parse_lines<T>(bytes: &[u8], parse: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not text".to_owned())?;
    let mut lines = text.lines();
    let (Some(version), Some(count)) = (lines.next(), lines.next()) else { return Ok(Vec::new()) };
    if version != VERSION {
        return Err(format!("version {version:?}, expected {VERSION}"));
    }
    let count: usize = count.parse().map_err(|_| format!("{count:?} is not a number of entries"))?;
    let mut entries = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        entries.push(parse(&words).ok_or_else(|| format!("malformed line {line:?}"))?);
    }
    if entries.len() != count {
        return Err(format!("{} entries, expected {count}", entries.len()));
    }
    Ok(entries)
}
