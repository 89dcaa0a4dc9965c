//! The sources of settings: files in TOML and in Java's properties format, the environment, and their order. Knows
//! texts, not what properties mean. Invariant: a later source wins, and every setting keeps its origin.

mod env;
mod kafka_image;
mod properties;
mod toml_file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::origin::{Origin, Problem, Setting};

/// Every property that some source sets, with the setting that wins.
pub type Settings = BTreeMap<String, Setting>;

/// Where a configuration comes from. Defaults stand below all of these.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// TOML when the name ends in `.toml`, else Java's properties format.
    pub file: Option<PathBuf>,
    /// Environment variables; those that Kafka's images would take count.
    pub env: Vec<(String, String)>,
    /// `key=value` of the command line.
    pub overrides: Vec<(String, String)>,
}

impl Sources {
    /// The process's own environment beside `file` and `overrides`.
    pub fn with_process_env(file: Option<PathBuf>, overrides: Vec<(String, String)>) -> Sources {
        // A variable that is not text can be no setting of ours.
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Sources { file, env, overrides }
    }

    /// What an environment variable says, if it says anything.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let variables = self.env.iter().filter(|(variable, _)| variable == name);
        variables.map(|(_, value)| value.as_str()).find(|value| !value.is_empty())
    }

    /// Whether settings beside the file name more than one controller.
    fn name_a_quorum(&self) -> bool {
        let env = self.env.iter().filter_map(|(variable, text)| Some((env::property_name(variable)?, text)));
        let overrides = self.overrides.iter().map(|(key, text)| (key.clone(), text));
        env.chain(overrides).any(|(key, text)| {
            matches!(key.as_str(), "controller.quorum.voters" | "controller.quorum.bootstrap.servers")
                && text.contains(',')
        })
    }
}

/// What a node is set to that is started without a file: one that stands alone on this machine...
const BUILTIN: &[(&str, &str)] = &[
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("controller.listener.names", "CONTROLLER"),
    ("listeners", "PLAINTEXT://127.0.0.1:9092"),
    ("log.dirs", "./floodmark-data"),
];

/// ... and has nobody to replicate to.
const BUILTIN_OF_ONE: &[(&str, &str)] = &[
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

/// Merges the sources. Properties that no table knows are kept.
pub(super) fn gather(sources: &Sources) -> Result<Settings, Vec<Problem>> {
    let mut settings = Settings::new();
    let mut set = |key: String, text: String, origin: Origin| {
        settings.insert(key, Setting { text, origin });
    };
    match &sources.file {
        Some(path) => {
            for (key, text, line) in read_file(path)? {
                set(key, text, Origin::File { path: Arc::from(path.as_path()), line });
            }
        }
        None => {
            let of_one = if sources.name_a_quorum() { &[] } else { BUILTIN_OF_ONE };
            for (key, text) in BUILTIN.iter().chain(of_one) {
                set((*key).to_owned(), (*text).to_owned(), Origin::Builtin);
            }
        }
    }
    for (variable, text) in &sources.env {
        if let Some(key) = env::property_name(variable) {
            set(key, text.clone(), Origin::Env(variable.clone()));
        }
    }
    for (key, text) in &sources.overrides {
        set(key.trim().to_owned(), text.clone(), Origin::Override);
    }
    Ok(settings)
}

/// A property, its text, and the line on which it stands.
type Line = (String, String, u32);

fn read_file(path: &Path) -> Result<Vec<Line>, Vec<Problem>> {
    let problem =
        |line, reason: String| vec![Problem::of_source(Origin::File { path: Arc::from(path), line }, reason)];
    let bytes = std::fs::read(path).map_err(|error| problem(0, format!("cannot be read: {error}")))?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        let text = String::from_utf8(bytes).map_err(|_| problem(0, "is not UTF-8 text".to_owned()))?;
        toml_file::parse(&text).map_err(|(line, reason)| problem(line, reason))
    } else {
        properties::parse(&bytes).map_err(|(line, reason)| problem(line, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, Sources, gather};

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_later_source_wins_and_keeps_its_origin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.properties");
        std::fs::write(&path, "# comment\na=file\nb=file\nc=file\n").unwrap();
        let sources = Sources {
            file: Some(path.clone()),
            env: pairs(&[("KAFKA_B", "env"), ("KAFKA_C", "env"), ("PATH", "/bin")]),
            overrides: pairs(&[("c", "command line")]),
        };
        let settings = gather(&sources).unwrap();
        let shown = |key: &str| (settings[key].text.as_str(), settings[key].origin.to_string());
        assert_eq!(shown("a"), ("file", format!("{}:2", path.display())));
        assert_eq!(shown("b"), ("env", "environment variable KAFKA_B".to_owned()));
        assert_eq!(shown("c"), ("command line", "--override".to_owned()));
        assert_eq!(settings.len(), 3);
    }

    #[test]
    fn without_a_file_a_node_stands_alone() {
        let settings = gather(&Sources::default()).unwrap();
        assert_eq!(settings["log.dirs"].text, "./floodmark-data");
        assert_eq!(settings["log.dirs"].origin, Origin::Builtin);
    }

    #[test]
    fn a_node_with_peers_replicates_as_kafka_does_by_default() {
        for name in ["KAFKA_CONTROLLER_QUORUM_VOTERS", "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"] {
            let told = |value| Sources { env: pairs(&[(name, value)]), ..Sources::default() };
            assert!(gather(&told("1@a:9093")).unwrap().contains_key("offsets.topic.replication.factor"));
            assert!(
                !gather(&told("1@a:9093,2@b:9093")).unwrap().contains_key("offsets.topic.replication.factor")
            );
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let sources = Sources { file: Some("no/such.properties".into()), ..Sources::default() };
        let problems = gather(&sources).unwrap_err();
        assert!(problems[0].to_string().starts_with("no/such.properties"), "{}", problems[0]);
    }
}
