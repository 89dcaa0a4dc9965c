//! Layer 6: the command line. `floodmark` alone serves; the subcommands prepare and inspect.

mod args;
mod bootstrap;
mod dev;
mod dump;
mod directories;
mod file_limit;
mod health;
mod metadata;
pub mod node;
mod scripts;
mod serve;
mod storage;
mod verify;
mod voters;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use tracing::level_filters::LevelFilter;

use args::{Cli, Command, ConfigCommand, LogCommand, Settings};

use crate::broker::loggers::Loggers;
use crate::config::{self, Config, Sources};

/// What ends a command, in words for people.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let since = Instant::now();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(done) = scripts::called(&words) {
        return done;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let done = match cli.command {
        None => serve(cli.settings, cli.parent, since),
        Some(Command::Dev(args)) => dev::run(&args),
        Some(Command::Storage(command)) => storage::run(command),
        Some(Command::Config(ConfigCommand::Check { file, overrides })) => check(&file, overrides),
        Some(Command::Health(args)) => load(args.settings)
            .and_then(|config| health::run(&config, args.address, Duration::from_millis(args.timeout))),
        Some(Command::Metadata(command)) => metadata::run(command),
        Some(Command::Log(LogCommand::Dump(args))) => dump::run(&args),
        Some(Command::Completions { shell }) => {
            clap_complete::generate(shell, &mut Cli::command(), "floodmark", &mut std::io::stdout());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Shows help, the version, or what is wrong with the command line. Kafka's storage tool ends with 1 for that.
fn not_understood(error: &clap::Error) -> ExitCode {
    // Nobody is there to hear that nothing can be printed.
    let _ = error.print();
    let of_storage = std::env::args_os().nth(1).is_some_and(|first| first == "storage");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if of_storage => ExitCode::FAILURE,
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

fn load(settings: Settings) -> Result<Config, Failure> {
    let sources = Sources::with_process_env(settings.config, settings.overrides);
    let sources = if settings.as_kafka_image { sources.as_in_kafkas_image() } else { sources };
    Ok(config::load(&sources)?)
}

fn serve(settings: Settings, parent: Option<u32>, since: Instant) -> Result<(), Failure> {
    if let Some(parent) = parent {
        dev::end_with(parent)?;
    }
    let config = load(settings)?;
    let loggers = Loggers::install(LevelFilter::INFO)?;
    serve::run(&config, loggers, since)
}

fn check(file: &Path, overrides: Vec<(String, String)>) -> Result<(), Failure> {
    let sources = Sources { file: Some(file.to_owned()), overrides, ..Sources::default() };
    match config::load(&sources) {
        Ok(config) => {
            for warning in &config.warnings {
                println!("warning: {warning}");
            }
            println!("{}: the configuration is valid", file.display());
            Ok(())
        }
        Err(errors) => {
            for warning in &errors.warnings {
                println!("warning: {warning}");
            }
            Err(errors.into())
        }
    }
}
