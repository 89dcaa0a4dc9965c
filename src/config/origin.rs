//! Where a value was set, and what is wrong with it. Knows no property. Invariant: a problem never shows a password.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Floodmark's own settings for a node that is started without a file.
    Builtin,
    File {
        path: Arc<Path>,
        line: u32,
    },
    /// The environment variable of this name.
    Env(String),
    /// `--override` on the command line.
    Override,
    /// The sources of another node, which tells what they say.
    OtherNode,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Builtin => f.write_str("built in, without a file"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(variable) => write!(f, "environment variable {variable}"),
            Origin::Override => f.write_str("--override"),
            Origin::OtherNode => f.write_str("another node"),
        }
    }
}

/// A value as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub text: String,
    pub origin: Origin,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the value was set; `None` when it is missing or a default.
    pub origin: Option<Origin>,
    /// The property, unless the problem is one of a whole source.
    pub key: Option<String>,
    /// The value, unless it is missing or a password.
    pub value: Option<String>,
    pub reason: String,
}

impl Problem {
    /// A problem of a source as a whole.
    pub(super) fn of_source(origin: Origin, reason: impl Into<String>) -> Problem {
        Problem { origin: Some(origin), key: None, value: None, reason: reason.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, "{key}={value}: ")?,
            (Some(key), None) => write!(f, "{key}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.reason)
    }
}

/// Everything that is wrong with a configuration, and what would have been warned about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration is refused:{}", .problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>())]
pub struct ConfigErrors {
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
}
