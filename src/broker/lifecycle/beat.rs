//! The task that registers this broker and sends its heartbeats: at intervals, and at once when there is something new to
//! say. Must not know how the controller is reached.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{LifecycleError, Shared, Wants};
use crate::broker::clock;
use crate::broker::controller_channel::{HeartbeatCallError, RegisterCallError};
use crate::broker::reconciler::Reconciled;
use crate::broker::stall::StallJudge;
use crate::metadata::Image;
use crate::metadata::brokers::{self, Heartbeat, HeartbeatReply};
use crate::types::{BrokerEpoch, DirectoryId, MonotonicMs, NodeId};

/// Heartbeats are no further apart than this, so that two seconds of standing still are told from a crash.
const INTERVAL_MS: u64 = 250;
/// While the broker leaves, or something went wrong.
const SHORT_INTERVAL: Duration = Duration::from_millis(25);
/// Once others lead, a broker that leaves still answers its clients for so long, and is still listed: they learn from it who
/// leads now. Who only finds its connection closed, and the broker gone from the metadata, looks for a second or longer.
const FAREWELL_MS: i64 = 200;
/// How long a heartbeat waits for its answer. Half the lease: there is time for another try.
const HEARTBEAT_LIMIT: Duration = Duration::from_millis(1_000);
const REGISTER_LIMIT: Duration = Duration::from_secs(5);
/// Between attempts to register.
const REGISTER_PAUSE: Duration = Duration::from_millis(100);
/// A process that had this id has died without a trace at most so long before it is known, beyond its session.
const DUPLICATE_GRACE: Duration = Duration::from_secs(2);

/// Registers for the first time, with patience: the controllers may be on their way too.
pub(super) async fn register_first(shared: &Shared) -> Result<(), LifecycleError> {
    let config = shared.parts.config.latest();
    let millis = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let limit = millis(config.broker.initial_broker_registration_timeout_ms);
    let duplicate_limit = limit.min(millis(config.broker.broker_session_timeout_ms) + DUPLICATE_GRACE);
    let started = Instant::now();
    let mut told = String::new();
    loop {
        let attempt = shared.register(shared.identity.previous_epoch).await;
        let why = match attempt {
            Ok(()) => return Ok(()),
            Err(RegisterCallError::Refused(why)) => return Err(LifecycleError::Refused(why)),
            Err(duplicate @ RegisterCallError::Duplicate) if started.elapsed() >= duplicate_limit => {
                return Err(LifecycleError::Refused(duplicate.to_string()));
            }
            Err(RegisterCallError::Unavailable(why)) if started.elapsed() >= limit => {
                return Err(LifecycleError::NoController(why));
            }
            Err(error) => error.to_string(),
        };
        if told != why {
            tracing::info!("Broker {} waits for its registration: {why}", shared.identity.id);
            told = why;
        }
        sleep(REGISTER_PAUSE).await;
    }
}

/// Sends heartbeats until the task is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut reconciled = shared.parts.reconciled.clone();
    let mut said = Said::default();
    let mut stall = StallJudge::new(shared.parts.waits.clone(), shared.parts.stall_limits);
    let mut farewell = Farewell::default();
    // What it says of itself so far is what it has registered with.
    let mut pause = shared.usual_pause();
    loop {
        wait(&shared, &mut reconciled, &said, pause).await;
        let wants = shared.wants().clone();
        let cordoned = shared.cordoned(&shared.parts.metadata.image());
        let sent = clock::monotonic();
        // Who is alone would gain nothing by leading nothing.
        let has_stalled = stall.look(sent, || shared.is_missed()) && !shared.parts.is_quiet;
        let may_go = wants.is_leaving && !farewell.lasts(sent);
        let heartbeat =
            Heartbeat { want_shutdown: may_go, ..shared.heartbeat(&wants, &cordoned, has_stalled) };
        let silent = shared.silent_brokers(sent);
        let answer = shared.parts.channel.heartbeat(&heartbeat, &silent, HEARTBEAT_LIMIT).await;
        pause = match answer {
            Ok(reply) => {
                if said.failing {
                    tracing::info!("The active controller answers heartbeats again");
                }
                said = Said { generation: wants.generation, cordoned, has_stalled, failing: false };
                shared.answered(&wants, reply, sent);
                if shared.has_others() {
                    farewell.heard(may_go, reply, clock::monotonic());
                }
                if wants.is_leaving || wants.is_ready && reply.fenced && !has_stalled {
                    Some(SHORT_INTERVAL)
                } else {
                    shared.usual_pause()
                }
            }
            Err(HeartbeatCallError::Stale) => {
                shared.register_again().await;
                Some(SHORT_INTERVAL)
            }
            Err(HeartbeatCallError::Unavailable(why)) => {
                if !std::mem::replace(&mut said.failing, true) {
                    tracing::warn!("A heartbeat has not reached the active controller: {why}");
                }
                Some(SHORT_INTERVAL * 2)
            }
        };
    }
}

/// From when others lead until this broker asks to go again.
#[derive(Default)]
pub(super) struct Farewell {
    until: Option<MonotonicMs>,
}

impl Farewell {
    /// Who has asked to go, and was not let go at once, leads something: others do, from this answer on.
    pub(super) fn heard(&mut self, has_asked: bool, reply: HeartbeatReply, now: MonotonicMs) {
        if has_asked && !reply.should_shut_down {
            self.until.get_or_insert(MonotonicMs(now.0 + FAREWELL_MS));
        }
    }

    pub(super) fn lasts(&self, now: MonotonicMs) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// What the active controller knows.
#[derive(Default)]
struct Said {
    generation: u64,
    cordoned: Vec<DirectoryId>,
    has_stalled: bool,
    failing: bool,
}

/// Waits until a heartbeat is due: after a pause, if there is one, or when there is something to say.
async fn wait(shared: &Shared, reconciled: &mut Reconciled, said: &Said, pause: Option<Duration>) {
    let news = async {
        loop {
            tokio::select! {
                () = shared.wake.notified() => {}
                changed = reconciled.changed() => {
                    if !changed {
                        std::future::pending::<()>().await;
                    }
                }
            }
            if shared.has_news(said) {
                return;
            }
        }
    };
    match pause {
        Some(pause) => drop(timeout(pause, news).await),
        None => news.await,
    }
}

impl Shared {
    async fn register(&self, previous_epoch: BrokerEpoch) -> Result<(), RegisterCallError> {
        let registration = self.registration(previous_epoch);
        let epoch = self.parts.channel.register(&registration, REGISTER_LIMIT).await?;
        self.epoch.store(epoch.0, Ordering::Release);
        tracing::info!("Broker {} is registered with epoch {epoch}", self.identity.id);
        Ok(())
    }

    /// The controller does not know this registration: somebody has removed it, or another process has taken the id.
    async fn register_again(&self) {
        self.parts.lease.revoke();
        // This process is still here, and what it acknowledged as well.
        match self.register(self.epoch()).await {
            Ok(()) => {}
            Err(error @ (RegisterCallError::Duplicate | RegisterCallError::Refused(_))) => {
                let image = self.parts.metadata.image();
                let registered = image.brokers.get(self.identity.id).map(|broker| broker.incarnation);
                if registered.is_some_and(|incarnation| incarnation != self.incarnation) {
                    let why = format!("broker {} can no longer be this process: {error}", self.identity.id);
                    tracing::error!("{why}");
                    self.heard.send_modify(|heard| heard.ousted = Some(why));
                    std::future::pending::<()>().await;
                }
                sleep(REGISTER_PAUSE).await;
            }
            Err(RegisterCallError::Unavailable(why)) => {
                tracing::debug!("not registered again: {why}");
                sleep(REGISTER_PAUSE).await;
            }
        }
    }

    fn heartbeat(&self, wants: &Wants, cordoned: &[DirectoryId], has_stalled: bool) -> Heartbeat {
        Heartbeat {
            id: self.identity.id,
            epoch: self.epoch(),
            metadata_offset: self.parts.reconciled.version().offset().plus(-1),
            want_fence: !wants.is_ready || has_stalled,
            want_shutdown: wants.is_leaving,
            offline_directories: wants.failed.clone(),
            cordoned_directories: wants.is_ready.then(|| cordoned.to_vec()),
        }
    }

    fn answered(&self, wants: &Wants, reply: HeartbeatReply, sent: MonotonicMs) {
        if reply.fenced {
            self.parts.lease.revoke();
        } else {
            self.parts.lease.renew(sent);
        }
        self.heard.send_modify(|heard| {
            heard.generation = heard.generation.max(wants.generation);
            heard.answers += 1;
            heard.should_shut_down |= wants.is_leaving && reply.should_shut_down;
        });
    }

    /// Whether there is another broker for clients to go to.
    fn has_others(&self) -> bool {
        let image = self.parts.metadata.image();
        image.brokers.iter().any(|broker| broker.id != self.identity.id && !broker.fenced)
    }

    /// For whom this broker waits in vain, of those that are taken to be alive.
    fn silent_brokers(&self, now: MonotonicMs) -> Vec<(NodeId, i64)> {
        let mut silent = self.parts.silence.silent(now);
        let image = self.parts.metadata.image();
        silent.retain(|(id, _)| image.brokers.get(*id).is_some_and(|broker| !broker.fenced));
        silent
    }

    /// Whether partitions take no records because this broker is not in sync.
    fn is_missed(&self) -> bool {
        let image = self.parts.metadata.image();
        brokers::is_missed(&image, self.identity.id, self.parts.config.at(&image).election_defaults())
    }

    /// Between heartbeats while nothing happens.
    fn usual_pause(&self) -> Option<Duration> {
        let configured = self.parts.config.latest().broker.broker_heartbeat_interval_ms;
        let pause = Duration::from_millis(u64::try_from(configured).unwrap_or(0).clamp(1, INTERVAL_MS));
        (!self.parts.is_quiet).then_some(pause)
    }

    /// Whether there is something to say that cannot wait.
    fn has_news(&self, said: &Said) -> bool {
        let wants = self.wants().clone();
        let image = self.parts.metadata.image();
        let me = image.brokers.get(self.identity.id);
        // A broker that is fenced while it serves wants to be back; one that leaves waits for everybody else to know.
        let serves = wants.is_ready && !wants.is_leaving && !said.has_stalled;
        let fenced = serves && me.is_some_and(|broker| broker.fenced);
        let leaves = image.brokers.iter().any(|broker| broker.in_controlled_shutdown && !broker.fenced);
        wants.generation > said.generation
            || fenced
            || leaves
            || wants.is_ready && self.cordoned(&image) != said.cordoned
    }

    /// The directories that take no new partitions, as `cordoned.log.dirs` is set in `image`.
    fn cordoned(&self, image: &Image) -> Vec<DirectoryId> {
        let config = self.parts.config.at(image);
        let directories = self.identity.directories.iter();
        directories.filter(|(_, path)| config.broker.cordons(path)).map(|(id, _)| *id).collect()
    }
}
