//! Access control entries by id. Kept and handed on; what they allow is decided elsewhere.

use super::record::Record;
use crate::types::Uuid;
use crate::wire::messages::metadata::{AccessControlEntryRecord, RemoveAccessControlEntryRecord};
use imbl::OrdMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acls {
    by_id: OrdMap<Uuid, Arc<AccessControlEntryRecord>>,
}

impl Acls {
    pub fn iter(&self) -> impl Iterator<Item = &AccessControlEntryRecord> {
        self.by_id.values().map(Arc::as_ref)
    }

    pub(super) fn add(&mut self, record: &AccessControlEntryRecord) {
        self.by_id.insert(record.id, Arc::new(record.clone()));
    }

    pub(super) fn remove(&mut self, record: &RemoveAccessControlEntryRecord) {
        self.by_id.remove(&record.id);
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.iter().map(|acl| acl.clone().into()));
    }
}
