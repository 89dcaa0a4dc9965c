//! The registered controllers. Kept and handed on; the Raft membership, not this, says who votes.

use super::record::Record;
use crate::types::NodeId;
use crate::wire::messages::metadata::{RegisterControllerRecord, UnregisterControllerRecord};
use imbl::OrdMap;
use std::sync::Arc;

/// Controllers by id, as they registered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controllers {
    by_id: OrdMap<NodeId, Arc<RegisterControllerRecord>>,
}

impl Controllers {
    pub fn get(&self, id: NodeId) -> Option<&RegisterControllerRecord> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &RegisterControllerRecord)> {
        self.by_id.iter().map(|(id, controller)| (*id, controller.as_ref()))
    }

    pub(super) fn register(&mut self, record: &RegisterControllerRecord) {
        self.by_id.insert(NodeId(record.controller_id), Arc::new(record.clone()));
    }

    pub(super) fn unregister(&mut self, record: &UnregisterControllerRecord) {
        self.by_id.remove(&NodeId(record.controller_id));
    }

    pub(super) fn to_records(&self, records: &mut Vec<Record>) {
        records.extend(self.by_id.values().map(|controller| controller.as_ref().clone().into()));
    }
}
