//! The cluster's metadata at one point of the log. It owns the fold: which part each record changes. The parts know what
//! a record means; nothing but `apply` changes an image, and an image never changes under a reader: a clone shares
//! everything and costs a few reference counts.
//!
//! `apply` takes records that were decided on this very image, so a record that does not fit is a defect, and it panics
//! rather than let brokers drift apart.

use super::acls::Acls;
use super::brokers::Brokers;
use super::configs::Configs;
use super::controllers::Controllers;
use super::features::{Features, MetadataVersion};
use super::producer_ids::ProducerIds;
use super::quotas::Quotas;
use super::record::Record;
use super::scram::ScramCredentials;
use super::tokens::DelegationTokens;
use super::topics::Topics;
use crate::types::{BrokerEpoch, Offset};

/// How many records have been applied: the offset that the next record has in the metadata log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageVersion(pub u64);

impl ImageVersion {
    /// The same as an offset, which is what clients see of it.
    pub fn offset(self) -> Offset {
        Offset(i64::try_from(self.0).unwrap_or(i64::MAX))
    }

    /// The epoch of a broker whose registration is the next record.
    pub fn broker_epoch(self) -> BrokerEpoch {
        BrokerEpoch(self.offset().0)
    }
}

impl std::fmt::Display for ImageVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything the cluster knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    pub version: ImageVersion,
    pub features: Features,
    pub brokers: Brokers,
    pub controllers: Controllers,
    pub topics: Topics,
    pub configs: Configs,
    pub producer_ids: ProducerIds,
    pub acls: Acls,
    pub quotas: Quotas,
    pub scram: ScramCredentials,
    pub tokens: DelegationTokens,
}

impl Image {
    /// The image that `records` fold to when they are a snapshot taken at `version`.
    pub fn from_snapshot<'a>(version: ImageVersion, records: impl IntoIterator<Item = &'a Record>) -> Image {
        let mut image = Image::default();
        for record in records {
            image.apply(record);
        }
        image.version = version;
        image
    }

    /// Folds one record in.
    pub fn apply(&mut self, record: &Record) {
        self.version.0 += 1;
        match record {
            Record::FeatureLevel(record) => self.features.apply(record),
            Record::RegisterBroker(record) => self.brokers.register(record),
            Record::UnregisterBroker(record) => self.brokers.unregister(record),
            Record::BrokerRegistrationChange(record) => self.brokers.change(record),
            Record::FenceBroker(record) => self.brokers.set_fenced(record.id, record.epoch, true),
            Record::UnfenceBroker(record) => self.brokers.set_fenced(record.id, record.epoch, false),
            Record::RegisterController(record) => self.controllers.register(record),
            Record::UnregisterController(record) => self.controllers.unregister(record),
            Record::Topic(record) => self.topics.add(record),
            Record::Partition(record) => self.topics.add_partition(record),
            Record::PartitionChange(record) => self.topics.change_partition(record),
            Record::ClearElr(record) => self.topics.clear_elr(record),
            Record::RemoveTopic(record) => {
                let name = self.topics.remove(record);
                self.configs.forget_topic(&name);
            }
            Record::Config(record) => self.configs.apply(record),
            Record::ProducerIds(record) => self.producer_ids.apply(record),
            Record::AccessControlEntry(record) => self.acls.add(record),
            Record::RemoveAccessControlEntry(record) => self.acls.remove(record),
            Record::ClientQuota(record) => self.quotas.apply(record),
            Record::UserScramCredential(record) => self.scram.set(record),
            Record::RemoveUserScramCredential(record) => self.scram.remove(record),
            Record::DelegationToken(record) => self.tokens.set(record),
            Record::RemoveDelegationToken(record) => self.tokens.remove(record),
            // Our log needs no transactions, an entry of it takes effect as a whole; and there was never a ZooKeeper.
            Record::NoOp(_)
            | Record::ZkMigrationState(_)
            | Record::BeginTransaction(_)
            | Record::EndTransaction(_)
            | Record::AbortTransaction(_) => {}
        }
    }

    /// A snapshot: the shortest log that folds to this image, but for its version. The metadata version comes first,
    /// as it says how the rest is written.
    pub fn to_records(&self) -> Vec<Record> {
        let version = self.metadata_version();
        let mut records = Vec::new();
        self.features.to_records(&mut records);
        self.controllers.to_records(&mut records);
        self.brokers.to_records(version, &mut records);
        self.topics.to_records(version, &mut records);
        self.configs.to_records(&mut records);
        self.quotas.to_records(&mut records);
        self.producer_ids.to_records(&mut records);
        self.acls.to_records(&mut records);
        self.scram.to_records(&mut records);
        self.tokens.to_records(&mut records);
        records
    }

    /// The finalized metadata version; the lowest there is in an image that has none yet.
    pub fn metadata_version(&self) -> MetadataVersion {
        self.features.metadata_version().unwrap_or(MetadataVersion::MINIMUM)
    }
}
