//! A producer that is told to come again with a batch is not told that what it had sent behind it is out of order: it would
//! take that for a loss, and go on in a way that may repeat what other logs have already.

use std::collections::BTreeMap;

use super::Broken;
use crate::sim::network::{ProduceRefusal, Refused};

#[derive(Debug, Default)]
pub struct TurnedAway {
    /// The first batch of each producer that was turned away on its newest connection to the process of this life.
    first: BTreeMap<usize, (u64, Refused)>,
}

impl TurnedAway {
    pub fn check(&mut self, life: u64, refused: Refused) -> Result<(), Broken> {
        let first = self.first.get(&refused.producer).filter(|(of, first)| {
            *of == life && first.connection == refused.connection && first.number < refused.number
        });
        match (refused.why, first) {
            (ProduceRefusal::Again, None) => {
                self.first.insert(refused.producer, (life, refused));
                Ok(())
            }
            (ProduceRefusal::OutOfOrder, Some((_, first))) => {
                Err(format!("turned away: {refused:?} is behind {first:?}"))
            }
            _ => Ok(()),
        }
    }
}
