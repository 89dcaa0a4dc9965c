//! The connections to leaders: a task for each broker that leads partitions which this one follows. It moves the calls of the
//! core and their answers, and dials again when a connection breaks.
//!
//! Decides nothing about partitions. Invariants: without partitions there is no connection, and a leader that has nothing to say
//! costs one request in `replica.fetch.wait.max.ms`; whatever breaks, the followers' questions are asked again until they
//! are answered or withdrawn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::core::{Call, FetcherConfig, LeaderFetcher};
use crate::broker::clock;
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::mailbox::AbortOnPanic;
use crate::broker::messages::PartitionWants;
use crate::broker::outbox::LeaderInlet;
use crate::broker::partitions::Partitions;
use crate::broker::peer_silence::PeerSilence;
use crate::broker::throttles::ReplicationThrottle;
use crate::config::BrokerConfig;
use crate::controller::MetadataHandle;
use crate::metadata::liveness::LONG_POLL_MS;
use crate::peer::{Address, CallError, Connection, DialError};
use crate::types::{BrokerEpoch, NodeId};
use crate::wire::messages::follower_fetch::FollowerFetchRequest;
use crate::wire::messages::{FetchResponse, ListOffsetsResponse};

/// The versions of the requests to leaders. They are of our own kind, so they know them.
const FETCH_VERSION: i16 = 18;
const LIST_OFFSETS_VERSION: i16 = 10;
/// How long a dial may take.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// A limit on replication that is exceeded may be lifted meanwhile: it is looked at again so soon.
const THROTTLE_LOOK: Duration = Duration::from_millis(250);
/// The pause after the first failed dial; each further one is twice as long, up to `replica.fetch.backoff.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// What the fetchers of a broker share.
#[derive(Clone)]
pub struct FetcherContext {
    pub me: NodeId,
    /// The epoch of this broker's registration as it is now.
    pub epoch: Arc<dyn Fn() -> BrokerEpoch + Send + Sync>,
    /// The name of the listener through which brokers reach each other.
    pub listener: Arc<str>,
    pub metadata: MetadataHandle,
    pub config: Arc<DynamicConfig>,
    pub partitions: Partitions,
    pub silence: PeerSilence,
    pub throttle: ReplicationThrottle,
}

/// Why a leader cannot be asked now.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it has no listener {0} that is known here")]
    NoEndpoint(Arc<str>),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Follows leaders as they come up, for as long as the shards live.
pub async fn run(context: FetcherContext, mut leaders: mpsc::UnboundedReceiver<LeaderInlet>) {
    let mut tasks = JoinSet::new();
    while let Some(inlet) = leaders.recv().await {
        let context = context.clone();
        tasks.spawn(async move {
            // Followers that nobody fetches for would fall behind in silence.
            let _fatal = AbortOnPanic;
            LeaderTask::new(context, inlet).run().await;
        });
    }
}

struct LeaderTask {
    context: FetcherContext,
    leader: NodeId,
    wants: mpsc::UnboundedReceiver<Vec<PartitionWants>>,
    fetcher: LeaderFetcher,
    /// The operator knows that the leader cannot be asked.
    is_told: bool,
    pause: Duration,
}

impl LeaderTask {
    fn new(context: FetcherContext, inlet: LeaderInlet) -> LeaderTask {
        let fetcher = LeaderFetcher::new(context.me, fetcher_config(&context.config.latest().broker));
        let LeaderInlet { leader, wants } = inlet;
        LeaderTask { context, leader, wants, fetcher, is_told: false, pause: FIRST_PAUSE }
    }

    async fn run(mut self) {
        loop {
            while self.fetcher.is_idle() {
                self.context.silence.answered(self.leader);
                let Some(news) = self.wants.recv().await else { return };
                self.fetcher.on_wants(news);
            }
            let config = self.current_config();
            if self.fetcher.config() != config {
                self.fetcher.configure(config);
            }
            let outcome = match self.dial().await {
                Ok(connections) => self.talk(connections).await,
                Err(broken) => Err(broken),
            };
            self.fetcher.on_disconnect();
            match outcome {
                Ok(Ended::Idle | Ended::Reconfigured) => {}
                Ok(Ended::Stopped) => return,
                Err(broken) => {
                    self.tell(&broken);
                    if !self.rest().await {
                        return;
                    }
                }
            }
        }
    }

    fn tell(&mut self, broken: &Broken) {
        if !std::mem::replace(&mut self.is_told, true) {
            let (leader, partitions) = (self.leader, self.fetcher.partitions());
            tracing::warn!(
                "Cannot fetch {partitions} partitions from broker {leader}, will go on trying: {broken}"
            );
        }
    }

    /// Pauses, taking in what followers want meanwhile. False when the broker stops.
    async fn rest(&mut self) -> bool {
        let pause = tokio::time::sleep(self.pause);
        tokio::pin!(pause);
        let longest = self.context.config.latest().broker.replica_fetch_backoff_ms;
        let longest = Duration::from_millis(u64::try_from(longest).unwrap_or(0));
        self.pause = (self.pause * 2).min(longest.max(FIRST_PAUSE));
        loop {
            tokio::select! {
                () = &mut pause => return true,
                news = self.wants.recv() => {
                    let Some(news) = news else { return false };
                    self.fetcher.on_wants(news);
                    if self.fetcher.is_idle() {
                        return true;
                    }
                }
            }
        }
    }

    /// One connection for each lane, and one for what must not wait behind a fetch that waits.
    async fn dial(&self) -> Result<Connections, Broken> {
        let context = &self.context;
        let image = context.metadata.image();
        let endpoint = image.brokers.get(self.leader).and_then(|broker| broker.endpoint(&context.listener));
        let endpoint = endpoint.ok_or_else(|| Broken::NoEndpoint(context.listener.clone()))?;
        let address = Address { host: endpoint.host.to_string(), port: endpoint.port };
        let client_id = format!("broker-{}-fetcher", context.me);
        context.silence.asked(self.leader, clock::monotonic());
        let open = || Connection::open(&address, &client_id, DIAL_LIMIT);
        let side = match open().await {
            Ok(side) => side,
            Err(error) => {
                if !matches!(error, DialError::Timeout { .. }) {
                    context.silence.answered(self.leader); // it is not there at all, which is no silence
                }
                return Err(error.into());
            }
        };
        let mut lanes = Vec::with_capacity(self.fetcher.lanes());
        for _ in 0..self.fetcher.lanes() {
            lanes.push(open().await?);
        }
        context.silence.answered(self.leader);
        Ok(Connections { lanes, side })
    }

    /// Asks and hears until a connection breaks or there is nobody to ask for.
    async fn talk(&mut self, connections: Connections) -> Result<Ended, Broken> {
        let mut under_way: FuturesUnordered<BoxFuture<'static, Answer>> = FuturesUnordered::new();
        loop {
            let epoch = (self.context.epoch)();
            let exceeded_for = self.context.throttle.exceeded_for_ms();
            let pause = exceeded_for.filter(|_| self.fetcher.has_throttled());
            let pause = pause.map(look_again_after);
            while let Some(call) = self.fetcher.next_call(epoch, exceeded_for.is_some()) {
                under_way.push(self.perform(&connections, call));
            }
            match under_way.is_empty() {
                true if self.fetcher.is_idle() => return Ok(Ended::Idle),
                _ if self.fetcher.config() != self.current_config() => return Ok(Ended::Reconfigured),
                // Whose partitions are all led elsewhere by now owes nothing.
                is_empty if is_empty || self.fetcher.is_idle() => self.context.silence.answered(self.leader),
                _ => self.expect_answer(),
            }
            tokio::select! {
                biased;
                news = self.wants.recv() => {
                    let Some(news) = news else { return Ok(Ended::Stopped) };
                    self.fetcher.on_wants(news);
                    while let Ok(news) = self.wants.try_recv() {
                        self.fetcher.on_wants(news);
                    }
                }
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                Some(answer) = under_way.next() => {
                    self.hear(answer)?;
                    if let Some(request) = self.fetcher.next_bounds() {
                        under_way.push(self.perform(&connections, Call::Bounds(request)));
                    }
                }
            }
        }
    }

    /// An answer is due, but later if the leader may wait for records for longer than is usual.
    fn expect_answer(&self) {
        let longer = i64::from(self.fetcher.config().wait_max_ms) - LONG_POLL_MS;
        self.context.silence.asked(self.leader, clock::monotonic().plus(longer.max(0)));
    }

    fn current_config(&self) -> FetcherConfig {
        fetcher_config(&self.context.config.latest().broker)
    }

    fn perform(&self, connections: &Connections, call: Call) -> BoxFuture<'static, Answer> {
        let broker = &self.context.config.latest().broker;
        let patience =
            i64::from(broker.replica_socket_timeout_ms) + i64::from(broker.replica_fetch_wait_max_ms);
        let limit = Duration::from_millis(u64::try_from(patience).unwrap_or(0));
        match call {
            Call::Fetch { lane, request } => {
                let connection = connections.lanes[lane].clone();
                Box::pin(async move {
                    Answer::Fetch(
                        lane,
                        connection.call_at(FETCH_VERSION, &FollowerFetchRequest(request), limit).await,
                    )
                })
            }
            Call::Report(request) => {
                let connection = connections.side.clone();
                Box::pin(async move {
                    Answer::Report(
                        connection.call_at(FETCH_VERSION, &FollowerFetchRequest(request), limit).await,
                    )
                })
            }
            Call::Bounds(request) => {
                let connection = connections.side.clone();
                Box::pin(async move {
                    Answer::Bounds(connection.call_at(LIST_OFFSETS_VERSION, &request, limit).await)
                })
            }
        }
    }

    fn hear(&mut self, answer: Answer) -> Result<(), Broken> {
        let fetched = match answer {
            Answer::Fetch(lane, response) => self.fetcher.on_fetch_answer(lane, response?),
            Answer::Report(response) => {
                response?;
                self.fetcher.on_report_answer();
                Vec::new()
            }
            Answer::Bounds(response) => self.fetcher.on_bounds_answer(&response?),
        };
        self.context.throttle.record(self.fetcher.take_throttled());
        self.context.silence.answered(self.leader);
        self.pause = FIRST_PAUSE;
        if std::mem::take(&mut self.is_told) {
            tracing::info!("Fetching from broker {} goes on", self.leader);
        }
        self.context.partitions.fetched(fetched);
        Ok(())
    }
}

/// Why there is nothing more to say on good connections.
enum Ended {
    Idle,
    Reconfigured,
    Stopped,
}

struct Connections {
    lanes: Vec<Connection>,
    side: Connection,
}

enum Answer {
    Fetch(usize, Result<FetchResponse, CallError>),
    Report(Result<FetchResponse, CallError>),
    Bounds(Result<ListOffsetsResponse, CallError>),
}

/// When to look again at a limit that is exceeded for so long as it is now.
fn look_again_after(exceeded_for_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(exceeded_for_ms).unwrap_or(0)).min(THROTTLE_LOOK)
}

pub(in crate::broker) fn fetcher_config(broker: &BrokerConfig) -> FetcherConfig {
    FetcherConfig {
        lanes: usize::try_from(broker.num_replica_fetchers).unwrap_or(1).max(1),
        wait_max_ms: broker.replica_fetch_wait_max_ms,
        min_bytes: broker.replica_fetch_min_bytes,
        partition_max_bytes: broker.replica_fetch_max_bytes,
        response_max_bytes: usize::try_from(broker.replica_fetch_response_max_bytes).unwrap_or(0).max(1),
    }
}
