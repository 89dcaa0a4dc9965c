//! Layer 2, pure: the cluster's metadata records, the image that they fold into, and the decisions that produce them.
//! Nothing here knows of Raft, of requests or of error codes; time and random ids are arguments.
//!
//! In reading order: `record` (what the log holds), `image` (the fold), then one module per kind of thing, each with its
//! part of the image and the decisions on it. A decision is a pure function of an image; only `Image::apply` changes
//! one. The law that ties them, held by property tests: folding a log gives the live image, and so does folding
//! [`Image::to_records`].

pub mod record;
pub mod image;

pub mod features;
pub mod brokers;
pub mod controllers;
pub mod topics;
pub mod configs;
pub mod producer_ids;
pub mod election;
mod partition_change;
pub mod alter_partition;
pub mod elect_leaders;
pub mod balance;
pub mod unclean;
pub mod liveness;
pub mod reassign;
pub mod placement;
pub mod acls;
pub mod quotas;
pub mod scram;
pub mod tokens;

pub mod reconcile;
pub mod export;

pub use features::MetadataVersion;
pub use image::{Image, ImageVersion};
pub use record::Record;

/// What an operation comes to: the records that make it so, and the answer to give once they are committed. Without
/// records the answer may be given as soon as the image that it was decided on is committed.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Decision<R> {
    pub records: Vec<Record>,
    pub reply: R,
}

impl<R> Decision<R> {
    pub fn new(records: Vec<Record>, reply: R) -> Decision<R> {
        Decision { records, reply }
    }

    /// An answer that changes nothing.
    pub fn reply(reply: R) -> Decision<R> {
        Decision { records: Vec::new(), reply }
    }

    /// The same records with another answer.
    pub fn map<S>(self, reply: impl FnOnce(R) -> S) -> Decision<S> {
        Decision { records: self.records, reply: reply(self.reply) }
    }
}

/// Decisions that are taken one after the other for one reply, each on what the ones before it make of the image.
struct Draft {
    image: Image,
    records: Vec<Record>,
}

impl Draft {
    fn new(image: &Image) -> Draft {
        Draft { image: image.clone(), records: Vec::new() }
    }

    fn add(&mut self, record: Record) {
        self.image.apply(&record);
        self.records.push(record);
    }

    fn decision<R>(self, reply: R) -> Decision<R> {
        Decision { records: self.records, reply }
    }
}

#[cfg(test)]
pub(crate) mod tests;
