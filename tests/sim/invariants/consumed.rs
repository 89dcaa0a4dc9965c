//! Consumers never see what later vanishes: what a consumer got is committed, and stays what it was.

use super::Broken;
use crate::sim::history::{Entry, History};
use crate::types::TopicIdPartition;

#[derive(Debug, Default)]
pub struct Consumed;

impl Consumed {
    pub fn check(&mut self, history: &History, id: TopicIdPartition, got: &[Entry]) -> Result<(), Broken> {
        let Some(known) = history.partitions.get(&id) else { return Ok(()) };
        for entry in got {
            if known.from(entry.base).first() != Some(entry) {
                return Err(format!("consumed: a consumer of {id:?} got {entry:?}, which is not committed"));
            }
        }
        Ok(())
    }
}
