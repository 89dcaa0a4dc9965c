//! `meta.properties` in a log directory: which cluster and node the directory belongs to, and its own id. A Java
//! properties file; of its syntax only what such a file can hold is read.

use std::io;
use std::path::Path;

use super::malformed;
use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::{DirectoryId, NodeId, kafka_uuid};

pub const META_PROPERTIES_FILE: &str = "meta.properties";

/// The longest id of a cluster, in bytes.
const MAX_CLUSTER_ID: usize = 255;

/// What a formatted log directory says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: NodeId,
    /// Directories formatted before KIP-858 have none.
    pub directory_id: Option<DirectoryId>,
}

/// Writes the file of the log directory `dir`. `written_at` is the date line of Java's format, as a comment; it may be
/// empty.
pub fn write_meta_properties(
    disk: &dyn Disk,
    dir: &Path,
    properties: &MetaProperties,
    written_at: &str,
) -> io::Result<()> {
    let mut text = String::from("#\n");
    if !written_at.is_empty() {
        text.push_str(&format!("#{written_at}\n"));
    }
    // In the order in which Java's hash table happens to have them.
    text.push_str(&format!("node.id={}\n", properties.node_id));
    if let Some(id) = properties.directory_id {
        text.push_str(&format!("directory.id={}\n", kafka_uuid::format(id)));
    }
    text.push_str(&format!("version=1\ncluster.id={}\n", escape(&properties.cluster_id)));
    write_file_atomically(disk, &dir.join(META_PROPERTIES_FILE), text.as_bytes())
}

/// The properties of the log directory `dir`; `None` when it is not formatted.
pub fn read_meta_properties(disk: &dyn Disk, dir: &Path) -> io::Result<Option<MetaProperties>> {
    let path = dir.join(META_PROPERTIES_FILE);
    let bytes = match read_file(disk, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    parse(&String::from_utf8_lossy(&bytes))
        .map(Some)
        .map_err(|what| malformed(format!("{}: {what}", path.display())))
}

fn parse(text: &str) -> Result<MetaProperties, String> {
    let value = |key: &str| {
        let mut found = None;
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', '!'])) {
            let Some(rest) = line.strip_prefix(key) else { continue };
            let rest = rest.trim_start();
            if let Some(value) = rest.strip_prefix(['=', ':']) {
                found = Some(unescape(value.trim_start()));
            }
        }
        found
    };
    let required = |key: &str| value(key).ok_or_else(|| format!("{key} is missing"));
    let number = |key: &str| {
        required(key)
            .and_then(|text| text.parse::<i32>().map_err(|_| format!("{key}={text} is not a number")))
    };
    // Version 0 was written by brokers with ZooKeeper, which had broker.id.
    let node_key = match value("version").as_deref().unwrap_or("0") {
        "0" => "broker.id",
        "1" => "node.id",
        other => return Err(format!("version {other} is unknown")),
    };
    let directory_id = match value("directory.id") {
        None => None,
        Some(text) => {
            Some(kafka_uuid::parse(&text).ok_or_else(|| format!("directory.id={text} is not an id"))?)
        }
    };
    Ok(MetaProperties {
        cluster_id: required("cluster.id")?,
        node_id: NodeId(number(node_key)?),
        directory_id,
    })
}

/// Whether `text` can name a cluster. Most ids are 22 letters of base64; Kafka takes any text, and this any word.
pub fn is_cluster_id(text: &str) -> bool {
    (1..=MAX_CLUSTER_ID).contains(&text.len())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Any text is allowed.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for (index, letter) in value.chars().enumerate() {
        if matches!(letter, '\\' | '=' | ':' | '#' | '!') || (letter == ' ' && index == 0) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn unescape(value: &str) -> String {
    let mut letters = value.chars();
    let mut plain = String::with_capacity(value.len());
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::is_cluster_id;

    #[test]
    fn any_word_names_a_cluster() {
        for id in ["4L6g3nShT-eMCtK--X86sw", "MkU3OEVBNTcwNTJENDM2Qk", "test-cluster", "#", &"x".repeat(255)]
        {
            assert!(is_cluster_id(id), "{id}");
        }
        for id in ["", " ", "two words", "a\n", "a\0", &"x".repeat(256)] {
            assert!(!is_cluster_id(id), "{id}");
        }
    }
}
