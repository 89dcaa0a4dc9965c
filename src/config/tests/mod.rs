//! Tests of the configuration as a whole, from sources to typed values, answers and refusals. Each file owns one side.
//! Invariant: a test states its whole configuration.

mod alter;
mod describe;
mod layers;
mod load;
mod node;

use super::{Config, ConfigErrors, Sources, Texts, load};

/// A configuration of a node that stands alone, with one property a line after it.
const ALONE: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
log.dirs=/data
";

/// Loads `text` as a file of this name.
fn load_file(name: &str, text: &str) -> Result<Config, ConfigErrors> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    load(&Sources { file: Some(path), ..Sources::default() })
}

/// Loads a node that stands alone with `more` properties.
fn alone_with(more: &str) -> Result<Config, ConfigErrors> {
    load_file("server.properties", &format!("{ALONE}{more}"))
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}
