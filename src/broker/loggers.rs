//! Log lines: to standard output, filtered by loggers whose levels can be changed while the node runs (KIP-412).
//!
//! A logger is a module path with dots (`floodmark.server.listener`); `root` stands for everything else. Levels set at run
//! time are not kept over a restart, as in Kafka.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, reload};

/// The logger that holds for whatever has none of its own.
pub const ROOT: &str = "root";

/// The loggers that are listed even before a level was set on them: the layers of the program.
const NAMED: &[&str] = &[
    "floodmark.api",
    "floodmark.broker",
    "floodmark.controller",
    "floodmark.server",
    "floodmark.storage",
    "openraft",
];

/// What openraft says concerns its developers, and goes on for as long as a peer is away; what people need to know of the
/// quorum is said by `controller`.
const QUIET: &[(&str, LevelFilter)] = &[("openraft", LevelFilter::OFF)];

/// The loggers of this process.
#[derive(Debug)]
pub struct Loggers {
    levels: Mutex<BTreeMap<String, LevelFilter>>,
    handle: Option<reload::Handle<Targets, Registry>>,
}

impl Loggers {
    /// Installs the process-wide log output; `level` is that of the root logger.
    pub fn install(level: LevelFilter) -> Result<Loggers, TryInitError> {
        let levels = initial(level);
        let (filter, handle) = reload::Layer::new(targets(&levels));
        let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stdout().is_terminal());
        // The filter is a layer of the registry itself, not of the output: a line that it drops costs nothing to format.
        tracing_subscriber::registry().with(filter).with(lines).try_init()?;
        Ok(Loggers { levels: Mutex::new(levels), handle: Some(handle) })
    }

    /// Loggers that are connected to no output, for tests of what is built on them.
    pub fn detached() -> Loggers {
        Loggers { levels: Mutex::new(initial(LevelFilter::INFO)), handle: None }
    }

    /// Every logger with its effective level in Kafka's words, sorted by name.
    pub fn list(&self) -> Vec<(String, &'static str)> {
        let levels = self.lock();
        let root = levels.get(ROOT).copied().unwrap_or(LevelFilter::INFO);
        let mut all: BTreeMap<&str, LevelFilter> = NAMED.iter().map(|&name| (name, root)).collect();
        all.extend(levels.iter().map(|(name, &level)| (name.as_str(), level)));
        all.into_iter().map(|(name, level)| (name.to_owned(), level_name(level))).collect()
    }

    /// Whether `name` is a logger that is listed.
    pub fn exists(&self, name: &str) -> bool {
        name == ROOT || NAMED.contains(&name) || self.lock().contains_key(name)
    }

    /// Sets the level of a logger; `None` gives it back to the root logger.
    pub fn set(&self, name: &str, level: Option<LevelFilter>) {
        let mut levels = self.lock();
        match level {
            Some(level) => {
                levels.insert(name.to_owned(), level);
            }
            None => {
                levels.remove(name);
            }
        }
        if let Some(handle) = &self.handle {
            // Fails only when the output is gone, and with it every reason to filter.
            let _ = handle.reload(targets(&levels));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, LevelFilter>> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The level that Kafka's word stands for; `FATAL` is the same as `ERROR` here, as there is nothing above errors.
pub fn parse_level(word: &str) -> Option<LevelFilter> {
    Some(match word {
        "FATAL" | "ERROR" => LevelFilter::ERROR,
        "WARN" => LevelFilter::WARN,
        "INFO" => LevelFilter::INFO,
        "DEBUG" => LevelFilter::DEBUG,
        "TRACE" => LevelFilter::TRACE,
        _ => return None,
    })
}

fn level_name(level: LevelFilter) -> &'static str {
    if level == LevelFilter::OFF {
        "OFF"
    } else if level == LevelFilter::ERROR {
        "ERROR"
    } else if level == LevelFilter::WARN {
        "WARN"
    } else if level == LevelFilter::INFO {
        "INFO"
    } else if level == LevelFilter::DEBUG {
        "DEBUG"
    } else {
        "TRACE"
    }
}

fn initial(level: LevelFilter) -> BTreeMap<String, LevelFilter> {
    let mut levels: BTreeMap<String, LevelFilter> =
        QUIET.iter().map(|&(name, quiet)| (name.to_owned(), quiet.min(level))).collect();
    levels.insert(ROOT.to_owned(), level);
    levels
}

fn targets(levels: &BTreeMap<String, LevelFilter>) -> Targets {
    let root = levels.get(ROOT).copied().unwrap_or(LevelFilter::INFO);
    let named = levels.iter().filter(|(name, _)| name.as_str() != ROOT);
    Targets::new()
        .with_default(root)
        .with_targets(named.map(|(name, &level)| (name.replace('.', "::"), level)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_inherited_until_set_and_after_it_is_taken_back() {
        let loggers = Loggers::detached();
        let level = |name: &str| loggers.list().into_iter().find(|(n, _)| n == name).map(|(_, level)| level);
        assert_eq!(level("floodmark.server"), Some("INFO"));
        loggers.set("floodmark.server", parse_level("DEBUG"));
        loggers.set(ROOT, parse_level("WARN"));
        assert_eq!((level("floodmark.server"), level("floodmark.api")), (Some("DEBUG"), Some("WARN")));
        loggers.set("floodmark.server", None);
        assert_eq!(level("floodmark.server"), Some("WARN"));
        assert!(!loggers.exists("kafka") && loggers.exists("openraft"));
        assert_eq!(parse_level("LOUD"), None);
    }
}
