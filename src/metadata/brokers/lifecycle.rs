//! A broker's life in the cluster: it registers, shows by heartbeats that it has caught up, is unfenced, asks to shut
//! down, is fenced when it falls silent, and may be unregistered for good. Each step decides what becomes of the
//! partitions that the broker leads or is in sync with. Who has a live session is the caller's to know.

use super::{BrokerRegistration, Endpoint};
use crate::metadata::election::{
    BrokerChange, ElectionDefaults, changes_for, changes_where, min_isr, unclean_is_allowed,
};
use crate::metadata::features::METADATA_VERSION;
use crate::metadata::record::Record;
use crate::metadata::{Decision, Image};
use crate::types::{BrokerEpoch, DirectoryId, NodeId, Offset, Uuid};
use crate::wire::messages::metadata::{BrokerRegistrationChangeRecord, UnregisterBrokerRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a starting broker says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    pub id: NodeId,
    pub incarnation: Uuid,
    pub endpoints: Vec<Endpoint>,
    pub features: BTreeMap<Arc<str>, (i16, i16)>,
    pub rack: Option<Arc<str>>,
    pub directories: Vec<DirectoryId>,
    /// The epoch with which the broker last ran and after which it lost nothing; unknown when it may have.
    pub previous_epoch: BrokerEpoch,
}

/// Why a broker is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterBrokerError {
    #[error("another process is registered as broker {0} and still alive")]
    DuplicateRegistration(NodeId),
    #[error("no log directories are named")]
    NoDirectories,
    #[error("log directory id {0} is reserved")]
    ReservedDirectory(DirectoryId),
    #[error("log directory id {0} is named twice")]
    DuplicateDirectory(DirectoryId),
    #[error("log directory id {directory} belongs to broker {owner}")]
    DirectoryOfAnotherBroker { directory: DirectoryId, owner: NodeId },
    #[error("the broker does not name the levels of metadata.version that it supports")]
    NoMetadataVersion,
    #[error("the cluster runs {feature} at level {finalized}, but the broker supports {min} to {max}")]
    UnsupportedFeature { feature: Arc<str>, finalized: i16, min: i16, max: i16 },
}

/// Registers a broker and gives it its epoch. `has_live_session`: the registered process, if any, still sends heartbeats.
pub fn register(
    image: &Image,
    registration: &Registration,
    has_live_session: bool,
    defaults: ElectionDefaults,
) -> Decision<Result<BrokerEpoch, RegisterBrokerError>> {
    let existing = image.brokers.get(registration.id);
    let same_process = existing.is_some_and(|existing| existing.incarnation == registration.incarnation);
    if existing.is_some() && has_live_session && !same_process {
        return Decision::reply(Err(RegisterBrokerError::DuplicateRegistration(registration.id)));
    }
    if let Err(error) =
        check_directories(image, registration).and_then(|()| check_features(image, registration))
    {
        return Decision::reply(Err(error));
    }
    let mut records = Vec::new();
    let mut broker = BrokerRegistration {
        id: registration.id,
        epoch: BrokerEpoch::UNKNOWN,
        incarnation: registration.incarnation,
        endpoints: registration.endpoints.clone(),
        features: registration.features.clone(),
        rack: registration.rack.clone(),
        fenced: true,
        in_controlled_shutdown: false,
        directories: registration.directories.clone(),
        cordoned_directories: None,
    };
    match existing.filter(|_| same_process) {
        Some(existing) => {
            broker.epoch = existing.epoch;
            broker.fenced = existing.fenced;
            broker.in_controlled_shutdown = existing.in_controlled_shutdown;
        }
        None => {
            let lost_nothing = existing.is_some_and(|old| old.epoch == registration.previous_epoch);
            let change = if lost_nothing || !image.features.elr_is_enabled() {
                BrokerChange::Leaves(registration.id)
            } else {
                BrokerChange::LosesData(registration.id)
            };
            records = changes_for(image, change, defaults);
            // The epoch is the place of the registration in the log, and so is higher than any before.
            broker.epoch = BrokerEpoch(image.version.offset().plus(records.len() as i64).0);
        }
    }
    records.push(broker.to_record(image.metadata_version()));
    Decision::new(records, Ok(broker.epoch))
}

fn check_directories(image: &Image, registration: &Registration) -> Result<(), RegisterBrokerError> {
    if !image.metadata_version().has_directories() {
        return Ok(());
    }
    if registration.directories.is_empty() {
        return Err(RegisterBrokerError::NoDirectories);
    }
    let mut seen = BTreeSet::new();
    for &directory in &registration.directories {
        // Kafka keeps the first hundred ids for purposes to come.
        if directory.as_u128() < 100 {
            return Err(RegisterBrokerError::ReservedDirectory(directory));
        }
        if !seen.insert(directory) {
            return Err(RegisterBrokerError::DuplicateDirectory(directory));
        }
        let mut others = image.brokers.iter().filter(|broker| broker.id != registration.id);
        if let Some(owner) = others.find(|broker| broker.directories.contains(&directory)) {
            return Err(RegisterBrokerError::DirectoryOfAnotherBroker { directory, owner: owner.id });
        }
    }
    Ok(())
}

fn check_features(image: &Image, registration: &Registration) -> Result<(), RegisterBrokerError> {
    let named = registration.features.keys().cloned();
    let finalized = image.features.finalized().into_iter().map(|(name, _)| name);
    for feature in named.chain(finalized).collect::<BTreeSet<_>>() {
        let level = image.features.level(&feature);
        let (min, max) = registration.features.get(&feature).copied().unwrap_or((0, 0));
        if !(min..=max).contains(&level) {
            return Err(RegisterBrokerError::UnsupportedFeature { feature, finalized: level, min, max });
        }
    }
    if registration.features.contains_key(METADATA_VERSION) {
        Ok(())
    } else {
        Err(RegisterBrokerError::NoMetadataVersion)
    }
}

/// What a broker says from time to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub id: NodeId,
    pub epoch: BrokerEpoch,
    /// The offset of the last metadata record that it has applied.
    pub metadata_offset: Offset,
    /// It does not serve: not yet, or because its disk has stalled.
    pub want_fence: bool,
    /// It leaves. In controlled shutdown: it may go as soon as nobody needs it; without, it stays a little for its clients.
    pub want_shutdown: bool,
    /// Log directories that failed.
    pub offline_directories: Vec<DirectoryId>,
    /// The directories that take no new partitions, once the broker knows.
    pub cordoned_directories: Option<Vec<DirectoryId>>,
}

/// What the broker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    pub caught_up: bool,
    pub fenced: bool,
    pub should_shut_down: bool,
}

/// Why a broker is not known by what it says it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerEpochError {
    #[error("broker {0} is not registered")]
    NotRegistered(NodeId),
    #[error("broker {broker} has epoch {current}, not {given}")]
    Stale { broker: NodeId, given: BrokerEpoch, current: BrokerEpoch },
}

/// The registration of a broker if it has this epoch.
pub fn check_epoch(
    image: &Image,
    id: NodeId,
    epoch: BrokerEpoch,
) -> Result<&BrokerRegistration, BrokerEpochError> {
    let broker = image.brokers.get(id).ok_or(BrokerEpochError::NotRegistered(id))?;
    if broker.epoch == epoch {
        Ok(broker)
    } else {
        Err(BrokerEpochError::Stale { broker: id, given: epoch, current: broker.epoch })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Fenced,
    Active,
    ShuttingDown,
    ShutDown,
}

/// What the image does not tell of a broker whose heartbeat has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Every other active broker knows of the leaders that replaced this one, so that it may go; only asked of a broker in
    /// controlled shutdown.
    pub others_caught_up: bool,
    /// It has asked to be fenced for long.
    pub insists: bool,
}

/// Takes a heartbeat.
pub fn heartbeat(
    image: &Image,
    heartbeat: &Heartbeat,
    known: Known,
    defaults: ElectionDefaults,
) -> Decision<Result<HeartbeatReply, BrokerEpochError>> {
    let broker = match check_epoch(image, heartbeat.id, heartbeat.epoch) {
        Ok(broker) => broker,
        Err(error) => return Decision::reply(Err(error)),
    };
    let current = match broker {
        // It was told to go. Only a new process, with a new registration, leaves this state.
        broker if broker.fenced && broker.in_controlled_shutdown => State::ShutDown,
        broker if broker.fenced => State::Fenced,
        broker if broker.in_controlled_shutdown => State::ShuttingDown,
        _ => State::Active,
    };
    let caught_up = heartbeat.metadata_offset.0 >= broker.epoch.0;
    let failed = newly_failed(image, broker, heartbeat);
    let mut next = next_state(image, current, heartbeat, caught_up, known.others_caught_up);
    let is_missed = || {
        invites_loss(image, broker.id, defaults)
            || takes_more_than_it_gives(image, broker.id, known.insists, defaults)
    };
    if (current, next) == (State::Active, State::Fenced) && is_missed() {
        // It serves badly, but it has what the others lack, or is one of too few.
        next = current;
    }
    if next == State::Active && !failed.is_empty() {
        // One change of a partition at a time: it is unfenced by its next heartbeat.
        next = current;
    }
    let mut records = match next {
        next if next == current => failed_directory_records(image, broker.id, &failed, defaults),
        State::Active => unfence_records(image, broker, defaults),
        State::ShuttingDown => shutdown_records(image, broker, defaults),
        State::Fenced | State::ShutDown if broker.fenced => Vec::new(),
        State::Fenced | State::ShutDown => fence_records(image, broker, defaults),
    };
    records.extend(directory_records(image, broker, heartbeat, &failed));
    let reply = HeartbeatReply {
        caught_up,
        fenced: matches!(next, State::Fenced | State::ShutDown),
        should_shut_down: next == State::ShutDown,
    };
    Decision::new(records, Ok(reply))
}

fn next_state(
    image: &Image,
    current: State,
    heartbeat: &Heartbeat,
    caught_up: bool,
    others_caught_up: bool,
) -> State {
    let leads = || {
        let mut partitions = image.topics.iter().flat_map(|topic| topic.partitions());
        partitions.any(|(_, partition)| partition.leader == heartbeat.id)
    };
    // Where nobody can take over, a broker that serves badly is better than none.
    let others_are_active = || {
        let mut others = image.brokers.iter().filter(|broker| broker.id != heartbeat.id);
        others.any(BrokerRegistration::is_active)
    };
    match current {
        State::Fenced if heartbeat.want_shutdown => State::ShutDown,
        State::Fenced if !heartbeat.want_fence && caught_up => State::Active,
        State::Active if heartbeat.want_fence && heartbeat.want_shutdown => State::ShutDown,
        State::Active if heartbeat.want_fence && others_are_active() => State::Fenced,
        State::Active if heartbeat.want_shutdown && leads() => State::ShuttingDown,
        State::Active if heartbeat.want_shutdown => State::ShutDown,
        State::ShuttingDown if heartbeat.want_shutdown && !leads() && others_caught_up => State::ShutDown,
        state => state,
    }
}

/// Whether a replica that may lack something would follow this broker as a leader somewhere, if it were fenced.
fn invites_loss(image: &Image, id: NodeId, defaults: ElectionDefaults) -> bool {
    let is_active = |id: &NodeId| image.brokers.get(*id).is_some_and(BrokerRegistration::is_active);
    image.topics.iter().filter(|topic| unclean_is_allowed(&image.configs, topic, defaults)).any(|topic| {
        let mut led = topic.partitions().filter(|(_, partition)| partition.leader == id);
        led.any(|(_, partition)| {
            let mut others = partition.isr.iter().filter(|replica| **replica != id);
            partition.replicas.len() > 1 && !others.any(is_active)
        })
    })
}

/// Whether more partitions would have too few replicas in sync without this broker than need not wait for it any more.
/// A disk that stalls must be well for a while before its broker is unfenced, and all that while they would take no records. But
/// what it takes is little beside what it holds up if it stalls for long (`insists`).
fn takes_more_than_it_gives(image: &Image, id: NodeId, insists: bool, defaults: ElectionDefaults) -> bool {
    let (mut taken, mut given) = (0, 0);
    for topic in image.topics.iter() {
        for (_, partition) in topic.partitions().filter(|(_, partition)| partition.isr.contains(&id)) {
            let min = min_isr(&image.configs, topic, partition.replicas.len(), defaults).max(1);
            match partition.isr.len() {
                in_sync if in_sync > min => given += 1,
                // With the last one, the partition has no leader either.
                in_sync if in_sync == min || in_sync == 1 => taken += 1,
                _ => {}
            }
        }
    }
    taken > given && (given == 0 || !insists)
}

/// Whether there are partitions that take no records because this broker, which has a replica, is not in sync.
pub fn is_missed(image: &Image, id: NodeId, defaults: ElectionDefaults) -> bool {
    image.topics.iter().any(|topic| {
        topic.partitions().any(|(_, partition)| {
            let is_out = partition.has_replica(id) && !partition.isr.contains(&id);
            let min = || min_isr(&image.configs, topic, partition.replicas.len(), defaults).max(1);
            is_out && partition.isr.len() < min()
        })
    })
}

/// Fences a broker that has fallen silent. Without an effect when it has registered anew since, or is fenced.
pub fn fence(image: &Image, id: NodeId, epoch: BrokerEpoch, defaults: ElectionDefaults) -> Decision<bool> {
    match check_epoch(image, id, epoch) {
        Ok(broker) if !broker.fenced => Decision::new(fence_records(image, broker, defaults), true),
        _ => Decision::reply(false),
    }
}

/// Forgets a broker.
pub fn unregister(
    image: &Image,
    id: NodeId,
    defaults: ElectionDefaults,
) -> Decision<Result<(), BrokerEpochError>> {
    let Some(broker) = image.brokers.get(id) else {
        return Decision::reply(Err(BrokerEpochError::NotRegistered(id)));
    };
    let mut records = changes_for(image, BrokerChange::LosesData(id), defaults);
    let record = UnregisterBrokerRecord {
        broker_id: id.0,
        broker_epoch: broker.epoch.0,
        ..UnregisterBrokerRecord::default()
    };
    records.push(record.into());
    Decision::new(records, Ok(()))
}

fn change_of(broker: &BrokerRegistration) -> BrokerRegistrationChangeRecord {
    BrokerRegistrationChangeRecord {
        broker_id: broker.id.0,
        broker_epoch: broker.epoch.0,
        ..BrokerRegistrationChangeRecord::default()
    }
}

fn fence_records(image: &Image, broker: &BrokerRegistration, defaults: ElectionDefaults) -> Vec<Record> {
    let mut records = changes_for(image, BrokerChange::Leaves(broker.id), defaults);
    records.push(BrokerRegistrationChangeRecord { fenced: 1, ..change_of(broker) }.into());
    records
}

fn unfence_records(image: &Image, broker: &BrokerRegistration, defaults: ElectionDefaults) -> Vec<Record> {
    let mut records = vec![BrokerRegistrationChangeRecord { fenced: -1, ..change_of(broker) }.into()];
    records.extend(changes_for(image, BrokerChange::Returns(broker.id), defaults));
    records
}

fn shutdown_records(image: &Image, broker: &BrokerRegistration, defaults: ElectionDefaults) -> Vec<Record> {
    let mut records =
        vec![BrokerRegistrationChangeRecord { in_controlled_shutdown: 1, ..change_of(broker) }.into()];
    records.extend(changes_for(image, BrokerChange::Leaves(broker.id), defaults));
    records
}

/// The directories that the broker reports as failed and that count as online so far.
fn newly_failed(image: &Image, broker: &BrokerRegistration, heartbeat: &Heartbeat) -> Vec<DirectoryId> {
    let online = broker.directories.iter().copied();
    online
        .filter(|directory| heartbeat.offline_directories.contains(directory))
        .filter(|_| image.metadata_version().has_directories())
        .collect()
}

/// Replicas in a failed directory leave the ISR, and leaders among them their office.
fn failed_directory_records(
    image: &Image,
    id: NodeId,
    failed: &[DirectoryId],
    defaults: ElectionDefaults,
) -> Vec<Record> {
    if failed.is_empty() {
        return Vec::new();
    }
    changes_where(image, BrokerChange::Leaves(id), defaults, |partition| {
        let directory = partition.directory(id);
        partition.isr.contains(&id) && directory.is_some_and(|directory| failed.contains(&directory))
    })
}

/// What the registration says of directories, where it changes. The last one is never taken off: a broker that has
/// lost them all stops by itself, and a list without any means that nothing changed.
fn directory_records(
    image: &Image,
    broker: &BrokerRegistration,
    heartbeat: &Heartbeat,
    failed: &[DirectoryId],
) -> Vec<Record> {
    let version = image.metadata_version();
    let mut records = Vec::new();
    let mut online = broker.directories.clone();
    online.retain(|directory| !failed.contains(directory));
    if !failed.is_empty() && !online.is_empty() {
        records.push(BrokerRegistrationChangeRecord { log_dirs: online, ..change_of(broker) }.into());
    }
    let cordoned = heartbeat.cordoned_directories.as_ref().filter(|_| version.has_cordoned_directories());
    if let Some(cordoned) = cordoned {
        let as_set = |ids: &[DirectoryId]| ids.iter().copied().collect::<BTreeSet<_>>();
        if broker.cordoned_directories.as_deref().map(as_set) != Some(as_set(cordoned)) {
            let cordoned_log_dirs = Some(cordoned.clone());
            records.push(BrokerRegistrationChangeRecord { cordoned_log_dirs, ..change_of(broker) }.into());
        }
    }
    records
}
