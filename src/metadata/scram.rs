//! SCRAM credentials by user and mechanism. Kept and handed on; nothing here checks a password.

use super::record::Record;
use crate::wire::messages::metadata::{RemoveUserScramCredentialRecord, UserScramCredentialRecord};
use imbl::OrdMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScramCredentials {
    by_user: OrdMap<(Arc<str>, i8), Arc<UserScramCredentialRecord>>,
}

impl ScramCredentials {
    pub fn iter(&self) -> impl Iterator<Item = &UserScramCredentialRecord> {
        self.by_user.values().map(Arc::as_ref)
    }

    pub(super) fn set(&mut self, record: &UserScramCredentialRecord) {
        self.by_user.insert((Arc::from(&*record.name), record.mechanism), Arc::new(record.clone()));
    }

    pub(super) fn remove(&mut self, record: &RemoveUserScramCredentialRecord) {
        self.by_user.remove(&(Arc::from(&*record.name), record.mechanism));
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.iter().map(|credential| credential.clone().into()));
    }
}
