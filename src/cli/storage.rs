//! `floodmark storage`: formats data directories and says what is in formatted ones, with the options, the words that scripts
//! look for, and the exit codes of `kafka-storage.sh`.
//!
//! Invariant: a directory that is formatted is never formatted again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::{FormatArgs, StorageCommand};
use super::bootstrap::{self, Bootstrap};
use super::voters::{self, Voters};
use super::{Failure, directories, load, verify};
use crate::config::{Config, NodeConfig};
use crate::metadata::MetadataVersion;
use crate::metadata::features::{KRAFT_VERSION, METADATA_VERSION, level_records};
use crate::storage::checkpoint::{META_PROPERTIES_FILE, MetaProperties, is_cluster_id, read_meta_properties};
use crate::storage::disk::{Disk, RealDisk};
use crate::types::{DirectoryId, kafka_uuid};

pub fn run(command: StorageCommand) -> Result<(), Failure> {
    match command {
        StorageCommand::RandomUuid => {
            println!("{}", kafka_uuid::format(directories::random_id()));
            Ok(())
        }
        StorageCommand::Info { settings } => info(&load(settings)?),
        StorageCommand::Verify { settings } => verify::run(&load(settings)?),
        StorageCommand::Format(args) => format(args),
    }
}

/// Every directory of a node, each once.
fn all_dirs(config: &Config) -> BTreeSet<PathBuf> {
    let node = &config.node;
    node.log_dirs.iter().chain([&node.metadata_log_dir]).cloned().collect()
}

fn info(config: &Config) -> Result<(), Failure> {
    let (mut there, mut problems) = (Vec::new(), Vec::new());
    let mut found: Option<MetaProperties> = None;
    for dir in all_dirs(config) {
        if dir.is_dir() {
            there.push(dir.clone());
        }
        match look_into(&dir, found.as_ref()) {
            Ok(properties) => {
                found.get_or_insert(properties);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !there.is_empty() {
        println!("Found log director{}:", if there.len() == 1 { "y" } else { "ies" });
        for dir in &there {
            println!("  {}", dir.display());
        }
        println!();
    }
    if let Some(properties) = &found {
        println!("Found metadata: {}\n", shown(properties));
    }
    if problems.is_empty() {
        return Ok(());
    }
    println!("Found problem{}:", if problems.len() == 1 { "" } else { "s" });
    for problem in &problems {
        println!("  {problem}");
    }
    Err("the directories are not ready".into())
}

/// What a directory is formatted for, or what is wrong with it, also beside what others are formatted for.
fn look_into(dir: &Path, other: Option<&MetaProperties>) -> Result<MetaProperties, String> {
    if !dir.is_dir() {
        let what = if dir.exists() { "is not a directory" } else { "does not exist" };
        return Err(format!("{} {what}", dir.display()));
    }
    let properties = match read_meta_properties(&RealDisk, dir) {
        Ok(Some(properties)) => properties,
        Ok(None) => return Err(format!("{} is not formatted.", dir.display())),
        Err(error) => return Err(format!("{}: {error}", dir.join(META_PROPERTIES_FILE).display())),
    };
    match other {
        Some(other) if other.cluster_id != properties.cluster_id => {
            Err(format!("{} belongs to another cluster: {}", dir.display(), properties.cluster_id))
        }
        Some(other) if other.node_id != properties.node_id => {
            Err(format!("{} belongs to another node: {}", dir.display(), properties.node_id))
        }
        _ => Ok(properties),
    }
}

fn shown(properties: &MetaProperties) -> String {
    let MetaProperties { cluster_id, node_id, directory_id } = properties;
    let directory = directory_id.map(|id| format!("directory.id={}, ", kafka_uuid::format(id)));
    format!("{{cluster.id={cluster_id}, {}node.id={node_id}, version=1}}", directory.unwrap_or_default())
}

fn format(args: FormatArgs) -> Result<(), Failure> {
    if !is_cluster_id(&args.cluster_id) {
        let hint = "the id must be one word, as 'floodmark storage random-uuid' prints it";
        return Err(format!("--cluster-id {}: {hint}", args.cluster_id).into());
    }
    let levels = args.feature.iter().map(|(name, level)| {
        let level = level.parse::<i16>().map_err(|_| format!("--feature {name}={level}: not a level"))?;
        Ok((Arc::from(name.as_str()), level))
    });
    let levels: Vec<(Arc<str>, i16)> = levels.collect::<Result<_, String>>()?;
    let version = metadata_version(args.release_version.as_deref(), &levels)?;
    let config = load(args.settings)?;
    let asked = initial_controllers(args.standalone, args.initial_controllers, args.no_initial_controllers)?;
    let voters = initial_voters(&config.node, asked)?;
    let kraft_version = kraft_version(&levels, config.node.quorum.voters.is_empty())?;
    let bootstrap = Bootstrap { records: level_records(version, &levels)?, kraft_version, voters };
    let unformatted = unformatted(&config, &args.cluster_id, args.ignore_formatted)?;
    if unformatted.is_empty() {
        println!("All of the log directories are already formatted.");
        return Ok(());
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    for dir in unformatted {
        let kind = DirectoryKind::of(&dir, &config.node, bootstrap.voters.as_ref());
        println!("Formatting {} {} with metadata.version {}.", kind.name(), dir.display(), version.name());
        RealDisk.create_dir_all(&dir)?;
        if kind.is_metadata() && config.node.roles.controller {
            bootstrap::write(&RealDisk, &dir, &bootstrap)?;
        }
        let id = kind.id().unwrap_or_else(directories::random_id);
        directories::format(&disk, &dir, config.node.node_id, &args.cluster_id, id)?;
    }
    Ok(())
}

/// What is to be formatted, in the words of Kafka's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryKind {
    Data,
    /// Of a node whose voters the configuration names, or that finds its quorum.
    Metadata,
    /// Of a node that is none of the initial voters.
    NoVoter,
    /// Of an initial voter; the others know it by this id.
    Voter(DirectoryId),
}

impl DirectoryKind {
    fn of(dir: &Path, node: &NodeConfig, voters: Option<&Voters>) -> DirectoryKind {
        match voters.map(|voters| voters.get(&node.node_id)) {
            _ if dir != node.metadata_log_dir => DirectoryKind::Data,
            None => DirectoryKind::Metadata,
            Some(None) => DirectoryKind::NoVoter,
            Some(Some(me)) => DirectoryKind::Voter(me.directory_id),
        }
    }

    fn name(self) -> &'static str {
        match self {
            DirectoryKind::Data => "data directory",
            DirectoryKind::Metadata => "metadata directory",
            DirectoryKind::NoVoter => "dynamic metadata directory",
            DirectoryKind::Voter(_) => "dynamic metadata voter directory",
        }
    }

    fn is_metadata(self) -> bool {
        self != DirectoryKind::Data
    }

    fn id(self) -> Option<DirectoryId> {
        match self {
            DirectoryKind::Voter(id) => Some(id),
            _ => None,
        }
    }
}

/// Which of the options on initial controllers was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InitialControllers {
    /// None of them.
    NotSaid,
    /// This node alone.
    Standalone,
    Named(String),
    /// To be found when the node starts.
    None,
}

fn initial_controllers(
    standalone: bool,
    named: Option<String>,
    none: bool,
) -> Result<InitialControllers, Failure> {
    match (standalone, named, none) {
        (false, None, false) => Ok(InitialControllers::NotSaid),
        (true, None, false) => Ok(InitialControllers::Standalone),
        (false, Some(named), false) => Ok(InitialControllers::Named(named)),
        (false, None, true) => Ok(InitialControllers::None),
        _ => Err("only one of --standalone, --initial-controllers and --no-initial-controllers can be given"
            .into()),
    }
}

/// The voters with which a dynamic quorum begins, if the options name them. Which options a node needs is as in Kafka.
fn initial_voters(node: &NodeConfig, asked: InitialControllers) -> Result<Option<Voters>, Failure> {
    let is_static = !node.quorum.voters.is_empty();
    let is_dynamic_controller = node.roles.controller && !is_static;
    let asked = match asked {
        // It has no listener where another controller could ask, so it stands alone.
        InitialControllers::NotSaid if is_dynamic_controller && node.controller_listeners.is_empty() => {
            InitialControllers::Standalone
        }
        asked => asked,
    };
    let refused = match &asked {
        InitialControllers::Standalone | InitialControllers::Named(_) if is_static => {
            "controller.quorum.voters is set, so the voters are those that it names; for --standalone or \
             --initial-controllers set controller.quorum.bootstrap.servers instead"
        }
        InitialControllers::Standalone if !node.roles.controller => {
            "--standalone is for controllers: process.roles does not name this role"
        }
        InitialControllers::NotSaid if is_dynamic_controller => {
            "this node is a controller and controller.quorum.voters is not set: one of --standalone, \
             --initial-controllers and --no-initial-controllers must say where its quorum comes from"
        }
        _ => "",
    };
    if !refused.is_empty() {
        return Err(refused.into());
    }
    match asked {
        InitialControllers::NotSaid | InitialControllers::None => Ok(None),
        InitialControllers::Standalone => Ok(Some(voters::standalone(node, directories::random_id()))),
        InitialControllers::Named(text) => {
            let listener = node.controller_listener_names.first().map_or("CONTROLLER", |name| name.as_str());
            let voters = voters::parse(&text, listener);
            Ok(Some(voters.map_err(|error| format!("--initial-controllers: {error}"))?))
        }
    }
}

/// The level of kraft.version: 0 for voters that the configuration names, and 1 for a dynamic quorum (KIP-853).
fn kraft_version(levels: &[(Arc<str>, i16)], is_dynamic: bool) -> Result<i16, Failure> {
    let asked = levels.iter().find(|(name, _)| **name == *KRAFT_VERSION).map(|(_, level)| *level);
    match asked {
        Some(0) if is_dynamic => {
            Err(format!("--feature {KRAFT_VERSION}=0 needs controller.quorum.voters, which is not set")
                .into())
        }
        Some(level) if level != 0 && !is_dynamic => {
            let hint = "for a dynamic quorum set controller.quorum.bootstrap.servers instead";
            Err(format!(
                "--feature {KRAFT_VERSION}={level} is not possible with controller.quorum.voters: {hint}"
            )
            .into())
        }
        Some(level) => Ok(level),
        None => Ok(i16::from(is_dynamic)),
    }
}

/// The metadata version that the options ask for: by its name or, among the features, by its level, but not by both.
fn metadata_version(release: Option<&str>, levels: &[(Arc<str>, i16)]) -> Result<MetadataVersion, String> {
    let level = levels.iter().find(|(name, _)| **name == *METADATA_VERSION).map(|(_, level)| *level);
    match (release, level) {
        (None, None) => Ok(MetadataVersion::LATEST),
        (Some(name), None) => MetadataVersion::from_name(name)
            .ok_or_else(|| format!("--release-version {name} is not a metadata version")),
        (None, Some(level)) => MetadataVersion::from_level(level)
            .ok_or_else(|| format!("--feature {METADATA_VERSION}={level} is not a metadata version")),
        (Some(name), Some(level)) => Err(format!(
            "--release-version {name} and --feature {METADATA_VERSION}={level}: only one of them"
        )),
    }
}

/// The directories that are to be formatted; an error if one is formatted that should not be, or for another node.
fn unformatted(config: &Config, cluster_id: &str, ignore: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut unformatted = Vec::new();
    for dir in all_dirs(config) {
        let Some(properties) = read_meta_properties(&RealDisk, &dir)? else {
            unformatted.push(dir);
            continue;
        };
        if !ignore {
            let hint = "Use --ignore-formatted to ignore this directory and format the others.";
            return Err(format!("Log directory {} is already formatted. {hint}", dir.display()).into());
        }
        expect_same(&dir, "cluster.id", cluster_id, &properties.cluster_id)?;
        expect_same(&dir, "node.id", &config.node.node_id.to_string(), &properties.node_id.to_string())?;
    }
    Ok(unformatted)
}

fn expect_same(dir: &Path, key: &str, expected: &str, found: &str) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let file = dir.join(META_PROPERTIES_FILE);
    Err(format!("Invalid {key} in: {}. Expected {expected}, but read {found}", file.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_version_is_named_or_leveled_beside_other_features() {
        let version = |release, levels: &[(&str, i16)]| {
            let levels: Vec<_> = levels.iter().map(|&(name, level)| (Arc::from(name), level)).collect();
            metadata_version(release, &levels).map(|version| version.name().to_owned())
        };
        assert_eq!(version(None, &[("group.version", 1)]).unwrap(), MetadataVersion::LATEST.name());
        assert_eq!(version(Some("4.0-IV3"), &[("group.version", 0)]).unwrap(), "4.0-IV3");
        assert_eq!(version(None, &[(METADATA_VERSION, 25)]).unwrap(), "4.0-IV3");
        assert!(version(Some("4.0-IV3"), &[(METADATA_VERSION, 25)]).is_err());
        assert!(version(Some("1.0"), &[]).is_err());
        assert!(version(None, &[(METADATA_VERSION, 999)]).is_err());
    }
}
