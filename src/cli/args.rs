//! What may be typed. Options of `storage` are those of Kafka's `kafka-storage.sh`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::config::HostPort;

const ABOUT: &str = "A broker that speaks Apache Kafka's protocol";

const LONG_ABOUT: &str = "A broker that speaks Apache Kafka's protocol.

Without a subcommand the node is started. It needs no configuration: with none it is broker and controller in one,
listens on 127.0.0.1:9092 and keeps its data in ./floodmark-data.

Settings have Kafka's names and come, the later ones winning, from the defaults, the file given by --config (TOML, or a
Java .properties file as Kafka has it), KAFKA_* environment variables as in Kafka's Docker image, and --override.";

const EXAMPLES: &str = "Examples:
  floodmark
  floodmark --config config/floodmark.toml
  floodmark --config server.properties --override log.dirs=/data/a,/data/b
  KAFKA_LISTENERS=PLAINTEXT://127.0.0.1:19092 KAFKA_LOG_DIRS=/data floodmark
  floodmark dev --brokers 3
  floodmark config check server.properties
  floodmark health --address 127.0.0.1:9092
  floodmark storage format --standalone --cluster-id \"$(floodmark storage random-uuid)\" --config server.properties";

/// The `floodmark` command line.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub settings: Settings,

    /// The process with which this node ends
    #[arg(long, value_name = "PID", hide = true)]
    pub parent: Option<u32>,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Where settings come from, besides the environment.
#[derive(Debug, Default, Args)]
pub struct Settings {
    /// The configuration file: .toml, or any other name for Java properties
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// One setting; may be given several times and wins over all other sources
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
    pub overrides: Vec<(String, String)>,

    /// Take the configuration as Kafka's Docker image does: from /mnt/shared/config, or KAFKA_* variables alone
    #[arg(long, env = "FLOODMARK_AS_KAFKA_IMAGE", hide_env_values = true)]
    pub as_kafka_image: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a throw-away cluster on this machine
    Dev(DevArgs),
    /// Format data directories, and say what is in them
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Check a configuration without starting anything
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Ask the node of a configuration whether it serves; exit code 0 if it does
    Health(HealthArgs),
    /// Look into the cluster's metadata on disk, while the node is stopped
    #[command(subcommand)]
    Metadata(MetadataCommand),
    /// Look into the files of partitions
    #[command(subcommand)]
    Log(LogCommand),
    /// Print the completion script of a shell
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
}

/// `dev`: the cluster lasts until Ctrl-C; each of its nodes is a process of its own.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// How many brokers it has; the first three are its controllers too
    #[arg(short = 'n', long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=20))]
    pub brokers: u16,
    /// The port of the first broker; the others and the controllers have the ones behind it
    #[arg(short, long, default_value_t = 9092, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Where to keep the data for the next time; without it, it is in a temporary directory and goes in the end
    #[arg(short, long)]
    pub dir: Option<PathBuf>,
    /// A setting for every node; may be given several times
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
    pub overrides: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub struct HealthArgs {
    #[command(flatten)]
    pub settings: Settings,
    /// Where to ask, HOST:PORT; by default the first listener without TLS and SASL
    #[arg(short, long, value_name = "ADDRESS", value_parser = HostPort::parse)]
    pub address: Option<HostPort>,
    /// How long connecting and the answer may take each, in milliseconds
    #[arg(short, long, value_name = "MS", default_value_t = 3000)]
    pub timeout: u64,
}

#[derive(Debug, Subcommand)]
pub enum StorageCommand {
    /// Format the data directories that the configuration names
    Format(FormatArgs),
    /// Say which directories are formatted, for which cluster and node
    Info {
        #[command(flatten)]
        settings: Settings,
    },
    /// Read all records and say what is damaged; the node must not run
    Verify {
        #[command(flatten)]
        settings: Settings,
    },
    /// Print a new id, as --cluster-id wants it
    RandomUuid,
}

/// `storage format`; names and short forms are those of `kafka-storage.sh format`.
#[derive(Debug, Args)]
pub struct FormatArgs {
    #[command(flatten)]
    pub settings: Settings,
    /// The id of the cluster, for example from `floodmark storage random-uuid`
    #[arg(short = 't', long, value_name = "ID")]
    pub cluster_id: String,
    /// Leave directories that are formatted as they are, and format the others
    #[arg(short = 'g', long)]
    pub ignore_formatted: bool,
    /// The metadata version of the new cluster, such as 4.4-IV2
    #[arg(short = 'r', long, value_name = "VERSION")]
    pub release_version: Option<String>,
    /// The level of one feature, such as group.version=1; may be given several times
    #[arg(short = 'f', long, value_name = "FEATURE=LEVEL", value_parser = key_value)]
    pub feature: Vec<(String, String)>,
    /// Let this node be the only voter of a new quorum
    #[arg(short, long)]
    pub standalone: bool,
    /// The voters of a new quorum: ID@HOST:PORT:DIRECTORY-ID, separated by commas
    #[arg(short = 'I', long, value_name = "VOTERS")]
    pub initial_controllers: Option<String>,
    /// Let this node find its quorum when it starts
    #[arg(short = 'N', long)]
    pub no_initial_controllers: bool,
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print what is in segments, indexes and snapshots, as kafka-dump-log.sh does
    Dump(DumpArgs),
}

/// `log dump`; names are those of `kafka-dump-log.sh`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["files", "paths"])))]
pub struct DumpArgs {
    /// The files, separated by commas
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub files: Vec<PathBuf>,
    /// Files, or directories of partitions
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Print keys and values of records
    #[arg(long)]
    pub print_data_log: bool,
    /// Print each record, and not the batches alone
    #[arg(long)]
    pub deep_iteration: bool,
    /// Leave out what surrounds keys and values, and control records
    #[arg(long)]
    pub skip_record_metadata: bool,
    /// Read no more than so many bytes of each segment
    #[arg(long, value_name = "BYTES")]
    pub max_bytes: Option<u64>,
    /// Compare indexes with their segments without printing the entries
    #[arg(long)]
    pub verify_index_only: bool,
    /// Only say whether a start would take the indexes as they are
    #[arg(long)]
    pub index_sanity_check: bool,
    /// Show the records of __consumer_offsets
    #[arg(long)]
    pub offsets_decoder: bool,
    /// Show the records of __transaction_state
    #[arg(long)]
    pub transaction_log_decoder: bool,
    /// Show the records of __cluster_metadata, from a log of Kafka's or a snapshot
    #[arg(long)]
    pub cluster_metadata_decoder: bool,
    /// Taken as Kafka's tool takes it; a batch is read whatever its size
    #[arg(long, value_name = "BYTES")]
    pub max_message_size: Option<u32>,
    #[command(flatten)]
    pub not_served: NotServedDecoders,
}

/// What `kafka-dump-log.sh` can show and this cannot: it is refused with the reason, and not as something unknown.
#[derive(Debug, Args)]
pub struct NotServedDecoders {
    #[arg(long, hide = true)]
    pub share_group_state_decoder: bool,
    #[arg(long, hide = true)]
    pub remote_log_metadata_decoder: bool,
    #[arg(long, hide = true, value_name = "CLASS")]
    pub key_decoder_class: Option<String>,
    #[arg(long, hide = true, value_name = "CLASS")]
    pub value_decoder_class: Option<String>,
}

impl NotServedDecoders {
    /// Why the command cannot do what it is asked for, if it cannot.
    pub fn refusal(&self) -> Option<String> {
        let java = "names a class of Java, which cannot be loaded here; without it keys and values are shown as text";
        let asked = [
            (
                self.share_group_state_decoder,
                "--share-group-state-decoder",
                "there are no share groups yet, and so no records of their state",
            ),
            (
                self.remote_log_metadata_decoder,
                "--remote-log-metadata-decoder",
                "there is no tiered storage, and so no records of what lies there",
            ),
            (self.key_decoder_class.is_some(), "--key-decoder-class", java),
            (self.value_decoder_class.is_some(), "--value-decoder-class", java),
        ];
        asked.into_iter().find(|(is_asked, ..)| *is_asked).map(|(_, option, why)| format!("{option}: {why}"))
    }
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Read a configuration file and report everything that is wrong or without effect
    Check {
        file: PathBuf,
        #[arg(long = "override", value_name = "KEY=VALUE", value_parser = key_value)]
        overrides: Vec<(String, String)>,
    },
}

#[derive(Debug, Subcommand)]
pub enum MetadataCommand {
    /// Print the Raft log and the state that it leads to, a JSON object a line
    Dump {
        #[command(flatten)]
        settings: Settings,
    },
    /// Write the state as a snapshot that `kafka-dump-log.sh --cluster-metadata-decoder` reads
    Export {
        #[command(flatten)]
        settings: Settings,
        /// Where to write; a folder gets a file with Kafka's name for a snapshot
        output: PathBuf,
    },
}

/// KEY=VALUE, as a setting is typed.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kafkas_short_forms_work() {
        let cli = Cli::try_parse_from([
            "floodmark",
            "storage",
            "format",
            "-t",
            "id",
            "-c",
            "f.properties",
            "-g",
            "-f",
            "group.version=0",
            "-s",
        ]);
        let Some(Command::Storage(StorageCommand::Format(format))) = cli.unwrap().command else {
            panic!("not a format command")
        };
        assert!(format.ignore_formatted && format.standalone);
        assert_eq!(format.feature, [("group.version".to_owned(), "0".to_owned())]);
        assert!(Cli::try_parse_from(["floodmark", "--override", "novalue"]).is_err());
    }
}
