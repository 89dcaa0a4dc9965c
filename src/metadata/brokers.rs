//! The registered brokers: where they listen, what they support, whether they may lead. A fenced broker is registered
//! but has not (or no longer) shown that it lives.

mod lifecycle;

pub use lifecycle::{
    BrokerEpochError, Heartbeat, HeartbeatReply, Known, RegisterBrokerError, Registration, check_epoch,
    fence, heartbeat, is_missed, register, unregister,
};

use super::features::MetadataVersion;
use super::record::Record;
use crate::types::{BrokerEpoch, DirectoryId, NodeId, Uuid, directory_id};
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::{
    BrokerEndpoint, BrokerFeature, BrokerRegistrationChangeRecord, RegisterBrokerRecord,
    UnregisterBrokerRecord,
};
use imbl::OrdMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the listener.
    pub listener: Arc<str>,
    pub host: Arc<str>,
    pub port: u16,
    /// Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// A broker process as the cluster knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerRegistration {
    pub id: NodeId,
    pub epoch: BrokerEpoch,
    /// Chosen by each process at its start, so that two processes with one id are told apart.
    pub incarnation: Uuid,
    pub endpoints: Vec<Endpoint>,
    /// The lowest and highest level of each feature that it supports.
    pub features: BTreeMap<Arc<str>, (i16, i16)>,
    pub rack: Option<Arc<str>>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    /// The log directories that are online, in order of their ids.
    pub directories: Vec<DirectoryId>,
    /// The directories that take no new partitions; none when the broker has not said.
    pub cordoned_directories: Option<Vec<DirectoryId>>,
}

impl BrokerRegistration {
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| &*endpoint.listener == listener)
    }

    /// Whether it may lead partitions and be in their ISR.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether it has a log directory that takes new partitions.
    pub fn takes_new_partitions(&self) -> bool {
        match &self.cordoned_directories {
            Some(cordoned) if !self.directories.is_empty() => {
                self.directories.iter().any(|directory| !cordoned.contains(directory))
            }
            _ => true,
        }
    }

    /// Where a new replica on this broker is to live, as far as the controller can say.
    pub fn directory_for_new_replica(&self) -> DirectoryId {
        match &self.directories[..] {
            [] => directory_id::MIGRATING,
            [only] => *only,
            _ => directory_id::UNASSIGNED,
        }
    }

    /// Whether a replica in this directory can be served, as far as the broker has said. A broker that names no
    /// directories is believed.
    pub fn has_online(&self, directory: DirectoryId) -> bool {
        match directory {
            directory_id::UNASSIGNED | directory_id::MIGRATING => true,
            directory_id::LOST => false,
            _ => self.directories.is_empty() || self.directories.contains(&directory),
        }
    }

    fn from_record(record: &RegisterBrokerRecord) -> BrokerRegistration {
        let mut directories = record.log_dirs.clone();
        directories.sort_unstable();
        BrokerRegistration {
            id: NodeId(record.broker_id),
            epoch: BrokerEpoch(record.broker_epoch),
            incarnation: record.incarnation_id,
            endpoints: record.end_points.iter().map(Endpoint::from).collect(),
            features: record
                .features
                .iter()
                .map(|f| (Arc::from(&*f.name), (f.min_supported_version, f.max_supported_version)))
                .collect(),
            rack: record.rack.as_deref().map(Arc::from),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            directories,
            cordoned_directories: record.cordoned_log_dirs.clone(),
        }
    }

    /// The record that registers this, with what `version` can say.
    pub(super) fn to_record(&self, version: MetadataVersion) -> Record {
        let mut record = RegisterBrokerRecord {
            broker_id: self.id.0,
            incarnation_id: self.incarnation,
            broker_epoch: self.epoch.0,
            end_points: self.endpoints.iter().map(BrokerEndpoint::from).collect(),
            features: self
                .features
                .iter()
                .map(|(name, (min, max))| BrokerFeature {
                    name: StrBytes::from_string(name.to_string()),
                    min_supported_version: *min,
                    max_supported_version: *max,
                    ..BrokerFeature::default()
                })
                .collect(),
            rack: self.rack.as_ref().map(|rack| StrBytes::from_string(rack.to_string())),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            ..RegisterBrokerRecord::default()
        };
        if version.has_directories() {
            record.log_dirs.clone_from(&self.directories);
        }
        if version.has_cordoned_directories() {
            record.cordoned_log_dirs.clone_from(&self.cordoned_directories);
        }
        record.into()
    }
}

impl From<&BrokerEndpoint> for Endpoint {
    fn from(endpoint: &BrokerEndpoint) -> Endpoint {
        Endpoint {
            listener: Arc::from(&*endpoint.name),
            host: Arc::from(&*endpoint.host),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
        }
    }
}

impl From<&Endpoint> for BrokerEndpoint {
    fn from(endpoint: &Endpoint) -> BrokerEndpoint {
        BrokerEndpoint {
            name: StrBytes::from_string(endpoint.listener.to_string()),
            host: StrBytes::from_string(endpoint.host.to_string()),
            port: endpoint.port,
            security_protocol: endpoint.security_protocol,
            ..BrokerEndpoint::default()
        }
    }
}

/// Registrations by broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brokers {
    by_id: OrdMap<NodeId, Arc<BrokerRegistration>>,
}

impl Brokers {
    pub fn get(&self, id: NodeId) -> Option<&BrokerRegistration> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    /// All registered brokers by id, fenced ones too.
    pub fn iter(&self) -> impl Iterator<Item = &BrokerRegistration> {
        self.by_id.values().map(Arc::as_ref)
    }

    /// Whether the broker may lead partitions and be in their ISR.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.get(id).is_some_and(BrokerRegistration::is_active)
    }

    pub(super) fn register(&mut self, record: &RegisterBrokerRecord) {
        let registration = BrokerRegistration::from_record(record);
        self.by_id.insert(registration.id, Arc::new(registration));
    }

    pub(super) fn unregister(&mut self, record: &UnregisterBrokerRecord) {
        self.by_id.remove(&NodeId(record.broker_id));
    }

    pub(super) fn set_fenced(&mut self, id: i32, epoch: i64, fenced: bool) {
        self.registration_mut(id, epoch).fenced = fenced;
    }

    pub(super) fn change(&mut self, record: &BrokerRegistrationChangeRecord) {
        let registration = self.registration_mut(record.broker_id, record.broker_epoch);
        match record.fenced {
            0 => {}
            change => registration.fenced = change > 0,
        }
        if record.in_controlled_shutdown != 0 {
            registration.in_controlled_shutdown = true;
        }
        if !record.log_dirs.is_empty() {
            registration.directories.clone_from(&record.log_dirs);
            registration.directories.sort_unstable();
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            registration.cordoned_directories = Some(cordoned.clone());
        }
    }

    fn registration_mut(&mut self, id: i32, epoch: i64) -> &mut BrokerRegistration {
        let registration = self.by_id.get_mut(&NodeId(id)).map(Arc::make_mut);
        match registration {
            Some(registration) if registration.epoch.0 == epoch => registration,
            _ => panic!("a record changes broker {id} of epoch {epoch}, which is not registered"),
        }
    }

    pub(super) fn to_records(&self, version: MetadataVersion, records: &mut Vec<Record>) {
        records.extend(self.iter().map(|registration| registration.to_record(version)));
    }
}
