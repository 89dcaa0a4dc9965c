//! Runs a node in this process until a signal ends it in an orderly way.

use std::sync::Arc;
use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::Failure;
use super::node::RunningNode;
use crate::broker::loggers::Loggers;
use crate::config::Config;

/// Blocking threads read logs from disk; more of them would only queue at the disk.
const MAX_BLOCKING_THREADS: usize = 32;

/// Runs the node until it is told to stop.
pub fn run(config: &Config, loggers: Loggers, since: Instant) -> Result<(), Failure> {
    let threads = usize::try_from(config.layers.broker_config().num_network_threads).unwrap_or(1).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("net")
        .enable_all()
        .build()?;
    runtime.block_on(serve(config, Arc::new(loggers), since))
}

async fn serve(config: &Config, loggers: Arc<Loggers>, since: Instant) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    let mut node = RunningNode::begin(config, loggers).await?;
    let failed = match run_node(&mut node, config, &mut stop, since).await {
        Ok(failed) => failed.map(|reason| format!("the metadata quorum has stopped: {reason}").into()),
        Err(error) => Some(error),
    };
    let ended = tokio::select! {
        () = node.stop() => true,
        _ = stop.requested() => false,
    };
    match failed {
        Some(error) => Err(error),
        None if !ended => Err("stopped at once on a second signal".into()),
        None => {
            info!("Stopped");
            Ok(())
        }
    }
}

/// Opens the node and lets it serve until a signal comes; gives the reason when it ends by itself.
async fn run_node(
    node: &mut RunningNode,
    config: &Config,
    stop: &mut Stop,
    since: Instant,
) -> Result<Option<String>, Failure> {
    let opened = tokio::select! {
        biased;
        signal = stop.requested() => {
            info!("Stopping on {signal}");
            return Ok(None);
        }
        opened = node.open() => opened,
    };
    opened?;
    info!("Started in {} ms", since.elapsed().as_millis());
    // The wording of both is Kafka's: clients' test rigs wait for the one, Testcontainers for the other.
    info!("[KafkaRaftServer nodeId={}] Kafka Server started", config.node.node_id);
    if config.node.roles.broker {
        info!("Broker {} accepts clients: Transitioning from RECOVERY to RUNNING", config.node.node_id);
    }
    tokio::select! {
        signal = stop.requested() => {
            info!("Stopping on {signal}");
            Ok(None)
        }
        reason = node.failed() => Ok(Some(reason)),
    }
}

/// The signals that end a node.
pub struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    pub fn new() -> Result<Stop, Failure> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub async fn requested(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
