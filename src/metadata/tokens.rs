//! Delegation tokens by id. Kept and handed on.

use super::record::Record;
use crate::wire::messages::metadata::{DelegationTokenRecord, RemoveDelegationTokenRecord};
use imbl::OrdMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelegationTokens {
    by_id: OrdMap<Arc<str>, Arc<DelegationTokenRecord>>,
}

impl DelegationTokens {
    pub fn iter(&self) -> impl Iterator<Item = &DelegationTokenRecord> {
        self.by_id.values().map(Arc::as_ref)
    }

    pub(super) fn set(&mut self, record: &DelegationTokenRecord) {
        self.by_id.insert(Arc::from(&*record.token_id), Arc::new(record.clone()));
    }

    pub(super) fn remove(&mut self, record: &RemoveDelegationTokenRecord) {
        self.by_id.remove(&*record.token_id);
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.iter().map(|token| token.clone().into()));
    }
}
