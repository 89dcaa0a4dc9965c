//! Kafka's scripts, as far as compose files call them inside a container: to see whether the broker is healthy, and to make
//! topics. The program does what a script of that name would when it is called by it; the image has the names as links.
//!
//! Whatever else the scripts can do is refused with a line that says so. Invariant: what is printed was answered by a broker,
//! and success means what it means of Kafka's script.

mod topics;
mod versions;

use std::ffi::OsStr;
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::Failure;
use crate::config::HostPort;
use crate::peer::{Address, Connection};
use crate::types::ErrorCode;
use crate::wire::messages::{DescribeClusterRequest, DescribeClusterResponse};

/// How long brokers are tried, and how long an answer may take: that of Kafka's tools.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one attempt to connect may take, and what is waited between two.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);
const CLIENT_ID: &str = "floodmark-scripts";

/// The scripts, each under the names that it has in the images of Kafka and of Confluent.
#[derive(Debug, Parser)]
#[command(multicall = true)]
enum Script {
    /// List, describe, and create topics
    #[command(name = "kafka-topics", alias = "kafka-topics.sh")]
    Topics(topics::Args),
    /// Tell which versions of which APIs the brokers serve
    #[command(name = "kafka-broker-api-versions", alias = "kafka-broker-api-versions.sh")]
    Versions(Servers),
    /// Tell the cluster's id
    #[command(name = "kafka-cluster", alias = "kafka-cluster.sh", subcommand)]
    Cluster(Cluster),
    /// Tell whether a port takes connections
    #[command(name = "nc")]
    Port(Port),
}

#[derive(Debug, Args)]
struct Servers {
    /// The brokers to ask, HOST:PORT, separated by commas
    #[arg(short, long, value_name = "SERVERS", value_delimiter = ',', required = true, value_parser = HostPort::parse)]
    bootstrap_server: Vec<HostPort>,
}

#[derive(Debug, Subcommand)]
enum Cluster {
    /// Tell the cluster's id
    ClusterId(Servers),
}

#[derive(Debug, Args)]
struct Port {
    /// Only connect, and send nothing; there is nothing else that this can do
    #[arg(short = 'z', required = true)]
    scan: bool,
    /// Say so if it has worked
    #[arg(short)]
    verbose: bool,
    /// How long connecting may take
    #[arg(short = 'w', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    wait: Option<u64>,
    host: String,
    port: u16,
}

/// Does what the script of this name would, if there is one; `words` are the whole command line.
pub fn called(words: &[impl AsRef<OsStr>]) -> Option<ExitCode> {
    let name = Path::new(words.first()?.as_ref()).file_name()?;
    Script::command().find_subcommand(name)?;
    let parsed = Script::command().try_get_matches_from(words.iter().map(AsRef::as_ref));
    let script = parsed.and_then(|matches| Script::from_arg_matches(&matches));
    Some(match script {
        Ok(script) => told(script.run()),
        Err(error) => not_served(&error, name),
    })
}

/// Shows help, or what is not understood or not served.
fn not_served(error: &clap::Error, name: &OsStr) -> ExitCode {
    // Nobody is there to hear that nothing can be printed; nor below.
    let _ = error.print();
    if error.exit_code() == 0 {
        return ExitCode::SUCCESS;
    }
    let name = name.to_string_lossy();
    let _ = writeln!(
        std::io::stderr(),
        "this {name} is Floodmark's, for health checks; what it can do is told by {name} --help"
    );
    ExitCode::FAILURE
}

fn told(answer: Result<String, Failure>) -> ExitCode {
    match answer {
        Ok(text) => {
            // `kafka-topics.sh --list | grep -q NAME` stops reading when it has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::FAILURE
        }
    }
}

impl Script {
    /// What is to be printed.
    fn run(self) -> Result<String, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match self {
                Script::Topics(args) => topics::run(&args).await,
                Script::Versions(servers) => versions::of_all(&servers.connect().await?).await,
                Script::Cluster(Cluster::ClusterId(servers)) => {
                    let cluster = describe_cluster(&servers.connect().await?).await?;
                    Ok(format!("Cluster ID: {}\n", cluster.cluster_id))
                }
                Script::Port(port) => port.try_it(),
            }
        })
    }
}

impl Servers {
    /// A connection to the first broker that takes one; they are tried for a while, as Kafka's tools do.
    async fn connect(&self) -> Result<Connection, Failure> {
        let end = Instant::now() + PATIENCE;
        let mut told = false;
        loop {
            for HostPort { host, port } in &self.bootstrap_server {
                let address = Address { host: host.clone(), port: *port };
                match Connection::open(&address, CLIENT_ID, ATTEMPT).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) if Instant::now() >= end => return Err(error.into()),
                    // Who ends us sooner has been told why there was no answer.
                    Err(error) if !told => {
                        let _ = writeln!(std::io::stderr(), "{error}; tried on for {} s", PATIENCE.as_secs());
                        told = true;
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn describe_cluster(connection: &Connection) -> Result<DescribeClusterResponse, Failure> {
    let answer = connection.call(&DescribeClusterRequest::default(), PATIENCE).await?;
    refused(answer.error_code, answer.error_message.as_deref())?;
    Ok(answer)
}

/// Fails with the error that an answer has, if it has one.
fn refused(code: i16, message: Option<&str>) -> Result<(), Failure> {
    let name = match ErrorCode::from_code(code) {
        Some(ErrorCode::None) => return Ok(()),
        Some(known) => known.name().to_owned(),
        None => format!("error {code}"),
    };
    Err(message.map_or(name.clone(), |message| format!("{name}: {message}")).into())
}

impl Port {
    fn try_it(&self) -> Result<String, Failure> {
        let Port { host, port, .. } = self;
        let mut failed = None;
        for address in (host.as_str(), *port).to_socket_addrs()? {
            let taken = match self.wait {
                Some(seconds) => TcpStream::connect_timeout(&address, Duration::from_secs(seconds)),
                None => TcpStream::connect(address),
            };
            match taken {
                Ok(_) if self.verbose => return Ok(format!("{host} {port} open\n")),
                Ok(_) => return Ok(String::new()),
                Err(error) => failed = Some(error),
            }
        }
        Err(format!("{host} {port}: {}", failed.map_or("no address".to_owned(), |error| error.to_string()))
            .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_lines_are_consistent() {
        Script::command().debug_assert();
    }

    #[test]
    fn command_lines_of_compose_files_are_understood() {
        for line in [
            "/opt/kafka/bin/kafka-topics.sh --bootstrap-server localhost:9092 --list",
            "kafka-topics --bootstrap-server=kafka-1:9092,kafka-2:9092 --list --exclude-internal",
            "kafka-topics.sh --describe --topic orders --bootstrap-server localhost:9092",
            "kafka-topics.sh --create --if-not-exists --topic a --partitions 3 --replication-factor 1 \
             --config retention.ms=1000 --config cleanup.policy=compact --bootstrap-server kafka:9092",
            "kafka-broker-api-versions.sh --bootstrap-server localhost:9092",
            "/usr/bin/kafka-broker-api-versions --bootstrap-server broker:29092",
            "kafka-cluster.sh cluster-id --bootstrap-server localhost:9092",
            "kafka-cluster cluster-id -b localhost:9092",
            "nc -z localhost 9092",
            "nc -zv -w 2 localhost 9092",
            "nc -vzw1 127.0.0.1 9092",
        ] {
            Script::try_parse_from(line.split_whitespace()).unwrap();
        }
    }

    #[test]
    fn what_is_not_served_is_not_taken_for_something_else() {
        for line in [
            "kafka-topics.sh --bootstrap-server localhost:9092",
            "kafka-topics.sh --bootstrap-server localhost:9092 --list --create --topic a",
            "kafka-topics.sh --bootstrap-server localhost:9092 --create",
            "kafka-topics.sh --bootstrap-server localhost:9092 --delete --topic a",
            "kafka-topics.sh --bootstrap-server localhost:9092 --describe --under-replicated-partitions",
            "kafka-topics.sh --bootstrap-server localhost:9092 --list --command-config client.properties",
            "kafka-topics.sh --bootstrap-server localhost:9092 --list --partitions 3",
            "kafka-topics.sh --bootstrap-server localhost:9092 --create --topic a --partitions 0",
            "kafka-topics.sh --list",
            "kafka-cluster.sh unregister --id 1 --bootstrap-server localhost:9092",
            "nc -l 9092",
            "nc localhost 9092",
        ] {
            assert!(Script::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
        for name in ["floodmark", "run", "/usr/local/bin/floodmark", "kafka-console-consumer.sh"] {
            assert!(called(&[name]).is_none(), "{name}");
        }
    }
}
