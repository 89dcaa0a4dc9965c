//! Follows the metadata: makes this broker host what the image assigns to it, in the role that the image gives it, with
//! the settings that it says.
//!
//! Must not know requests. Invariant: when [`Reconciled`] has reached a version, every partition of that image is hosted here
//! or on the list of those that could not be opened, and its shard has taken its role: readers see who leads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::assignments::Report;
use super::blocking::blocking;
use super::checkpoints::Checkpoints;
use super::clock;
use super::dynamic_config::DynamicConfig;
use super::flusher::DEFAULT_THREADS;
use super::log_dirs::{LogDirs, OpenError, Opened, Retired};
use super::mailbox::Message;
use super::messages::{Host, RoleSpec};
use super::moves::Moves;
use super::partitions::{Partition, Partitions};
use super::settings::{TopicSettings, topic_warnings};
use crate::metadata::brokers::BrokerRegistration;
use crate::metadata::reconcile::{Changes, Reconfigured, Replica, Stop, changes};
use crate::metadata::topics::{LeaderRecoveryState, PartitionRegistration, is_given_up, is_kept_out};
use crate::metadata::{Image, ImageVersion};
use crate::replica::{BrokerStanding, Registration, Term};
use crate::storage::log::{Log, LogConfig};
use crate::types::{NodeId, TopicIdPartition, directory_id};

/// How long a partition that could not be opened waits for the next attempt: the disk may have room again.
const RETRY: Duration = Duration::from_secs(10);

/// Tells up to which version the metadata has taken effect on this broker.
#[derive(Clone, Debug)]
pub struct Reconciled(watch::Receiver<ImageVersion>);

impl Reconciled {
    /// Waits until the image with this version has taken effect here. False when the broker stops before.
    pub async fn reached(&mut self, version: ImageVersion) -> bool {
        self.0.wait_for(|reached| *reached >= version).await.is_ok()
    }

    /// The version that has taken effect.
    pub fn version(&self) -> ImageVersion {
        *self.0.borrow()
    }

    /// Waits until a version takes effect that was not seen here. False when the broker stops before.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// For whoever is tested without a reconciler: as if everything had taken effect.
    #[cfg(test)]
    pub(super) fn everything() -> Reconciled {
        Reconciled(watch::channel(ImageVersion(u64::MAX / 2)).1)
    }
}

/// What follows from a change and keeps nobody waiting.
#[derive(Debug)]
pub enum Chore {
    /// Tell the cluster in which log directories partitions are. What is told last is what holds, so there is one queue for it.
    ReportPlacement(Report),
    /// Remove the files of deleted partitions after a delay.
    Remove { retired: Vec<Retired>, delay_ms: i64 },
}

#[derive(Debug)]
pub struct Reconciler {
    me: NodeId,
    config: Arc<DynamicConfig>,
    settings: TopicSettings,
    partitions: Partitions,
    dirs: Arc<LogDirs>,
    checkpoints: Arc<Checkpoints>,
    chores: mpsc::UnboundedSender<Chore>,
    /// What moves partitions between log directories, once it does.
    moves: Option<Moves>,
    /// The image that this broker has caught up with.
    seen: Arc<Image>,
    /// Replicas that could not be opened for a reason that may pass.
    failed: Vec<Replica>,
    reached: watch::Sender<ImageVersion>,
}

impl Reconciler {
    /// A broker that hosts nothing yet.
    pub fn new(
        me: NodeId,
        config: Arc<DynamicConfig>,
        partitions: Partitions,
        dirs: Arc<LogDirs>,
        checkpoints: Arc<Checkpoints>,
        chores: mpsc::UnboundedSender<Chore>,
    ) -> (Reconciler, Reconciled) {
        let (reached, reconciled) = watch::channel(ImageVersion::default());
        let settings = TopicSettings::new(config.latest());
        warn_of(&settings, None);
        let (moves, seen, failed) = Default::default();
        let reconciler = Reconciler {
            me,
            config,
            settings,
            partitions,
            dirs,
            checkpoints,
            chores,
            moves,
            seen,
            failed,
            reached,
        };
        (reconciler, Reconciled(reconciled))
    }

    /// Moves of partitions end there before they are let go of.
    #[must_use]
    pub fn with_moves(self, moves: Moves) -> Reconciler {
        Reconciler { moves: Some(moves), ..self }
    }

    /// Takes away what lies in the log directories and is not this broker's, by an image that is current.
    pub async fn clear(&self, image: Arc<Image>) {
        let dirs = self.dirs.clone();
        let retired = blocking(move || dirs.clear(&image)).await;
        if !retired.is_empty() {
            // What their topics said is gone with them.
            let delay_ms = self.settings.default_log().file_delete_delay_ms;
            let _ = self.chores.send(Chore::Remove { retired, delay_ms });
        }
    }

    /// Follows the images until there are no more.
    pub async fn run(mut self, mut images: watch::Receiver<Arc<Image>>) {
        loop {
            let image = images.borrow_and_update().clone();
            if image.version > self.seen.version {
                self.catch_up(image).await;
            }
            tokio::select! {
                changed = images.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(RETRY), if self.has_failed() => {
                    self.retry().await;
                }
            }
        }
    }

    /// Whether something could not be opened for a reason that may pass.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Tries again to open what could not be opened.
    pub async fn retry(&mut self) {
        let failed = std::mem::take(&mut self.failed);
        let image = self.seen.clone();
        self.start(failed, &image).await;
    }

    /// Makes this broker what the image says.
    pub async fn catch_up(&mut self, image: Arc<Image>) {
        let Changes { stop, start, update, configure } = changes(self.me, &self.seen, &image);
        if configure == Reconfigured::All {
            let before = std::mem::replace(&mut self.settings, TopicSettings::new(self.config.at(&image)));
            warn_of(&self.settings, Some(&before));
        }
        warn_of_topics(&self.seen, &image, &configure);
        self.failed.retain(|replica| !stop.iter().any(|stop| stop.id == replica.id));
        if !stop.is_empty() {
            self.stop(stop).await;
        }
        self.start(start, &image).await;
        for replica in update {
            match self.failed.iter_mut().find(|failed| failed.id == replica.id) {
                Some(failed) => *failed = replica,
                None => {
                    self.tell(&replica.id, Message::Assume(replica.id, self.role(&replica, &image))).await;
                }
            }
        }
        self.configure(&configure, &image).await;
        self.partitions.fence().await;
        self.reached.send_replace(image.version);
        self.seen = image;
    }

    async fn tell(&self, id: &TopicIdPartition, message: Message) {
        self.partitions.shard_of(id).send(message).await;
    }

    /// Opens or makes logs, and hands them to their shards.
    async fn start(&mut self, replicas: Vec<Replica>, image: &Image) {
        if replicas.is_empty() {
            return;
        }
        let with_config = |replica: Replica| {
            let config = self.settings.of_topic(image, &replica.name.topic).log;
            (replica, config)
        };
        let jobs: Vec<(Replica, Arc<LogConfig>)> = replicas.into_iter().map(with_config).collect();
        let mut hosts = Vec::with_capacity(jobs.len());
        let (mut placed, mut unserved) = (Vec::new(), Vec::new());
        let (jobs, results) = self.open(jobs).await;
        for ((replica, _), result) in jobs.into_iter().zip(results) {
            match result {
                Ok(opened) => {
                    let directory = opened.directory.id();
                    let assigned = replica.registration.directory(self.me);
                    // One that was given up is in its place again when it is whole.
                    if assigned != Some(directory) && !is_kept_out(&replica.registration, self.me) {
                        placed.push((replica.id, directory));
                    }
                    hosts.push(self.host(&replica, opened, image));
                }
                Err(error) => {
                    unserved.push(replica.id);
                    let is_here = matches!(
                        error,
                        OpenError::NotWhereNamed | OpenError::AnnouncedCopyAlone | OpenError::Twin
                    );
                    if is_here {
                        // Whoever believes that it is here would wait for it.
                        placed.push((replica.id, directory_id::LOST));
                    }
                    if error.may_pass() {
                        tracing::warn!("Partition {} cannot be served yet: {error}", replica.name);
                        self.failed.push(replica);
                    } else {
                        tracing::error!("Partition {} cannot be served: {error}", replica.name);
                    }
                }
            }
        }
        // What it leads to is reconciled like any other change. From when they are in the table on, partitions may be moved, and
        // that is told after this.
        if !placed.is_empty() {
            let _ = self.chores.send(Chore::ReportPlacement(Report::of(placed)));
        }
        self.partitions.update(|table| {
            for host in &hosts {
                table.insert(host.partition.id, host.partition.clone());
            }
        });
        self.partitions.note_unserved(unserved.iter(), hosts.iter().map(|host| &host.partition.id));
        self.refresh_checkpoints().await;
        for host in hosts {
            let id = host.partition.id;
            self.tell(&id, Message::Host(Box::new(host))).await;
        }
    }

    /// Before anything is appended to partitions that are new, the checkpoints must not tell of older ones of their names.
    async fn refresh_checkpoints(&self) {
        if self.dirs.take_replaced() || self.checkpoints.is_stale() {
            let checkpoints = self.checkpoints.clone();
            blocking(move || checkpoints.write_all()).await;
        }
    }

    async fn open(&self, jobs: Vec<(Replica, Arc<LogConfig>)>) -> (Jobs, Results) {
        let is_start = self.seen.version == ImageVersion::default();
        let hosted = self.partitions.all();
        let futures = hosted.values().filter_map(|partition| Some(partition.future()?.directory.index()));
        let hosted = hosted.values().map(|partition| partition.directory().index()).chain(futures);
        let placement = self.dirs.placement(self.settings.broker(), hosted, !is_start);
        let per_directory = self.settings.broker().num_recovery_threads_per_data_dir;
        let recovering =
            usize::try_from(per_directory).unwrap_or(1).max(1) * self.dirs.directories().len().max(1);
        // Later it is new logs that are made, which is waiting for the disk more than work.
        let threads = if is_start { recovering } else { DEFAULT_THREADS };
        let dirs = self.dirs.clone();
        blocking(move || {
            let results = dirs.open_all(&jobs, placement, threads, clock::wall());
            (jobs, results)
        })
        .await
    }

    fn host(&self, replica: &Replica, opened: Opened, image: &Image) -> Host {
        let Opened { log, directory, cleaned } = opened;
        let partition = Partition::new(replica.id, replica.name.clone(), directory, &log);
        partition.set_cleaned(cleaned);
        let settings = self.settings.of_topic(image, &replica.name.topic);
        let config = settings.replica(replica.id.partition, self.me);
        Host { partition: Arc::new(partition), log, config, role: self.role(replica, image) }
    }

    fn role(&self, replica: &Replica, image: &Image) -> RoleSpec {
        let registration = &replica.registration;
        let (leader_epoch, partition_epoch) = (registration.leader_epoch, registration.partition_epoch);
        if registration.leader != self.me {
            let may_lack_committed = registration.leader_recovery_state == LeaderRecoveryState::Recovering;
            let (leader, lossy_epoch) = (registration.leader, registration.lossy_epoch);
            let term = Term { leader, leader_epoch, lossy_epoch, may_lack_committed };
            return if is_given_up(registration, self.me) {
                RoleSpec::Rebuild(term)
            } else {
                RoleSpec::Follow(term)
            };
        }
        let standing = |node: &NodeId| (*node, standing(*node, registration, image));
        let replicas = registration.replicas.iter().map(standing).collect();
        let isr = registration.isr.clone();
        RoleSpec::Lead(Registration { leader_epoch, partition_epoch, replicas, isr })
    }

    /// Lets go of partitions and sets their directories aside; the files are removed a while later.
    async fn stop(&mut self, stops: Vec<Stop>) {
        if let Some(moves) = &self.moves {
            moves.abandon(stops.iter().map(|stop| &stop.id));
        }
        let mut released = Vec::with_capacity(stops.len());
        for stop in &stops {
            let (done, log) = oneshot::channel();
            self.tell(&stop.id, Message::Release(stop.id, done)).await;
            released.push((self.partitions.get(&stop.id), log));
        }
        let mut retiring = Vec::with_capacity(stops.len());
        for (partition, log) in released {
            retiring.push((partition, log.await.ok().flatten()));
        }
        self.partitions.update(|table| {
            for stop in &stops {
                table.remove(&stop.id);
            }
        });
        self.partitions.note_unserved(std::iter::empty(), stops.iter().map(|stop| &stop.id));
        let delay_ms =
            retiring.iter().flat_map(|(_, log)| log).map(|log| log.config().file_delete_delay_ms).min();
        let (dirs, checkpoints) = (self.dirs.clone(), self.checkpoints.clone());
        let retired = blocking(move || {
            let unopened: Vec<Retired> =
                stops.iter().flat_map(|stop| dirs.retire_unopened(&stop.id, &stop.name)).collect();
            let mut retired = retire(&dirs, &checkpoints, retiring);
            dirs.sync_retired(&unopened);
            retired.extend(unopened);
            retired
        });
        let retired = retired.await;
        if !retired.is_empty() {
            let delay_ms = delay_ms.unwrap_or(self.settings.default_log().file_delete_delay_ms);
            let _ = self.chores.send(Chore::Remove { retired, delay_ms });
        }
    }

    async fn configure(&self, what: &Reconfigured, image: &Image) {
        match what {
            Reconfigured::Topics(names) if names.is_empty() => {}
            Reconfigured::Topics(names) => {
                for topic in names.iter().filter_map(|name| image.topics.by_name(name)) {
                    for (partition, _) in topic.partitions() {
                        let id = TopicIdPartition { topic_id: topic.id, partition };
                        self.configure_one(id, &topic.name, image).await;
                    }
                }
            }
            Reconfigured::All => {
                for (id, partition) in &self.partitions.all() {
                    self.configure_one(*id, &partition.name.topic, image).await;
                }
            }
        }
    }

    async fn configure_one(&self, id: TopicIdPartition, topic: &str, image: &Image) {
        let settings = self.settings.of_topic(image, topic);
        self.tell(&id, Message::Configure(id, settings.log.clone(), settings.replica(id.partition, self.me)))
            .await;
    }
}

/// Tells what was set since `before`, or at all, and has no effect.
fn warn_of(settings: &TopicSettings, before: Option<&TopicSettings>) {
    for warning in settings.warnings_since(before) {
        tracing::warn!("Dynamic configuration: {warning}");
    }
}

/// The same of topics. What goes for all changes nothing that they set, unless nothing was seen of them before.
fn warn_of_topics(seen: &Image, now: &Image, what: &Reconfigured) {
    let warnings = match what {
        Reconfigured::Topics(names) => topic_warnings(seen, now, names.iter().map(|name| &**name)),
        Reconfigured::All => topic_warnings(seen, now, now.topics.iter().map(|topic| &*topic.name)),
    };
    for warning in warnings {
        tracing::warn!("Dynamic configuration: {warning}");
    }
}

type Jobs = Vec<(Replica, Arc<LogConfig>)>;
type Results = Vec<Result<Opened, OpenError>>;

fn standing(node: NodeId, of: &PartitionRegistration, image: &Image) -> BrokerStanding {
    // A replica that is being rebuilt cannot join, nor one whose directory has failed, however far it had come.
    let directory = of.directory(node).filter(|directory| *directory != directory_id::LOST);
    let is_out = |broker: &BrokerRegistration| {
        is_given_up(of, node) || directory.is_some_and(|directory| !broker.has_online(directory))
    };
    match image.brokers.get(node) {
        None => BrokerStanding::Absent,
        Some(broker) if broker.fenced || is_out(broker) => BrokerStanding::Fenced(broker.epoch),
        Some(broker) if broker.in_controlled_shutdown => BrokerStanding::Leaving(broker.epoch),
        Some(broker) => BrokerStanding::Active(broker.epoch),
    }
}

/// Sets the directories of released partitions aside. The checkpoints come first, so that they say nothing of a name that is used
/// again.
fn retire(
    dirs: &LogDirs,
    checkpoints: &Checkpoints,
    released: Vec<(Option<Arc<Partition>>, Option<Log>)>,
) -> Vec<Retired> {
    for partition in released.iter().filter_map(|(partition, _)| partition.as_ref()) {
        dirs.forget(&partition.directory(), &partition.name);
    }
    checkpoints.write_all();
    let mut retired = Vec::with_capacity(released.len());
    for (partition, log) in released {
        let (Some(partition), Some(log)) = (partition, log) else { continue };
        let directory = partition.directory();
        directory.flush.forget(&partition.id);
        drop(log);
        match dirs.retire(&directory, &partition.name) {
            Ok(files) => retired.extend(files),
            Err(error) => directory.fail(&format!("delete {}", partition.name), &error),
        }
    }
    dirs.sync_retired(&retired);
    retired
}

#[cfg(test)]
mod tests;
