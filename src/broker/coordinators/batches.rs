//! Records of a coordinator as record batches: those of one producer's transaction by themselves, the records of a step
//! together where they fit, no batch larger than the log takes.
//!
//! Knows no log. Invariant: the batches hold the records in the order in which they were decided.

use bytes::Bytes;

use crate::coordinator::{Encode, Producer, Write};
use crate::storage::log::producer_state::{Coordinated, MarkerEpoch, Verified};
use crate::types::{LeaderEpoch, Offset, TimestampMs};
use crate::wire::batch::{HEADER_LEN, NO_SEQUENCE};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::compression::{Codec, CompressError};
use crate::wire::control::EndTxnMarker;

/// What a record takes beside key and value, at most.
const RECORD_OVERHEAD: usize = 36;

/// Why records are no batches.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchesError<E> {
    #[error("a record cannot be written: {0}")]
    Record(E),
    #[error(transparent)]
    Compress(#[from] CompressError),
}

/// Collects what is to be appended at once.
pub(super) struct Batches {
    codec: Codec,
    /// No batch becomes larger unless a single record is.
    max_bytes: usize,
    now: TimestampMs,
    done: Vec<(Bytes, Coordinated)>,
    open: Option<(Option<Producer>, BatchBuilder)>,
    records: i64,
}

impl Batches {
    pub(super) fn new(codec: Codec, max_bytes: usize, now: TimestampMs) -> Batches {
        Batches { codec, max_bytes, now, done: Vec::new(), open: None, records: 0 }
    }

    /// How large a record may be, key and value together, so that the log takes its batch. Of what is compressed that is seen
    /// afterwards.
    pub(super) fn record_max(&self) -> usize {
        if self.codec == Codec::NONE {
            self.max_bytes.saturating_sub(HEADER_LEN + RECORD_OVERHEAD)
        } else {
            usize::MAX
        }
    }

    /// The records of one step. They share a batch if they can: a coordinator that takes over in between finds all or none.
    pub(super) fn step<R: Encode>(
        &mut self,
        writes: impl Iterator<Item = Write<R>>,
    ) -> Result<(), BatchesError<R::Error>> {
        let encode = |write: Write<R>| Ok((write.producer, write.record.encode()?));
        let encoded: Vec<_> = writes.map(encode).collect::<Result<_, _>>().map_err(BatchesError::Record)?;
        let size = |key: &Bytes, value: &Option<Bytes>| {
            RECORD_OVERHEAD + key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        let whole: usize = encoded.iter().map(|(_, (key, value))| size(key, value)).sum();
        if self.open_size() + whole > self.max_bytes {
            self.close()?;
        }
        for (producer, (key, value)) in encoded {
            let is_other = self.open.as_ref().is_some_and(|(open, _)| *open != producer);
            if is_other || self.open_size() + size(&key, &value) > self.max_bytes {
                self.close()?;
            }
            let (_, builder) = self.open.get_or_insert_with(|| (producer, builder(producer, self.codec)));
            builder.push(self.now, Some(&key), value.as_deref(), &[]);
            self.records += 1;
        }
        Ok(())
    }

    /// The end of a producer's transaction. The log sets its place.
    pub(super) fn marker(
        &mut self,
        producer: Producer,
        marker: &EndTxnMarker,
        marker_epoch: MarkerEpoch,
    ) -> Result<(), CompressError> {
        self.close()?;
        let batch = marker.batch(producer.id, producer.epoch, Offset::ZERO, LeaderEpoch::UNKNOWN);
        self.done.push((batch, Coordinated { marker_epoch, ..Coordinated::default() }));
        self.records += 1;
        Ok(())
    }

    /// Nothing is to be appended.
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The batches, and how many records they hold.
    pub(super) fn finish(mut self) -> Result<(Vec<(Bytes, Coordinated)>, i64), CompressError> {
        self.close()?;
        Ok((self.done, self.records))
    }

    fn open_size(&self) -> usize {
        self.open.as_ref().map_or(0, |(_, builder)| builder.size_in_bytes())
    }

    fn close(&mut self) -> Result<(), CompressError> {
        if let Some((_, builder)) = self.open.take() {
            // Whoever commits in a transaction has made sure that there is one.
            let coordinated = Coordinated { verified: Verified::Waived, ..Coordinated::default() };
            self.done.push((builder.build()?, coordinated));
        }
        Ok(())
    }
}

fn builder(producer: Option<Producer>, codec: Codec) -> BatchBuilder {
    let builder = BatchBuilder::new().compression(codec);
    match producer {
        None => builder,
        Some(producer) => builder.producer(producer.id, producer.epoch, NO_SEQUENCE).transactional(true),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::types::{ProducerEpoch, ProducerId};
    use crate::wire::batch::BatchHeader;
    use crate::wire::control::TxnResult;

    struct Sized(usize);

    impl Encode for Sized {
        type Error = Infallible;

        fn encode(&self) -> Result<(Bytes, Option<Bytes>), Infallible> {
            Ok((Bytes::from_static(b"k"), Some(vec![0; self.0].into())))
        }
    }

    const NONE: Option<Producer> = None;

    fn producer(id: i64) -> Option<Producer> {
        Some(Producer { id: ProducerId(id), epoch: ProducerEpoch(3) })
    }

    fn step(batches: &mut Batches, writes: &[(Option<Producer>, usize)]) {
        let writes = writes.iter().map(|&(producer, size)| Write { record: Sized(size), producer });
        batches.step(writes).unwrap();
    }

    /// Producer and number of records of each batch.
    fn shape(batches: Batches) -> Vec<(i64, i32)> {
        let (batches, records) = batches.finish().unwrap();
        let headers: Vec<_> = batches.iter().map(|(batch, _)| BatchHeader::parse(batch).unwrap()).collect();
        assert_eq!(headers.iter().map(|header| i64::from(header.record_count)).sum::<i64>(), records);
        headers.iter().map(|header| (header.producer_id.0, header.record_count)).collect()
    }

    fn batches() -> Batches {
        Batches::new(Codec::NONE, 1_000, TimestampMs(1))
    }

    #[test]
    fn a_step_is_not_torn_if_it_fits() {
        let mut some = batches();
        step(&mut some, &[(NONE, 300), (NONE, 300)]);
        step(&mut some, &[(NONE, 100), (NONE, 300)]);
        step(&mut some, &[(NONE, 10)]);
        assert_eq!(shape(some), [(-1, 2), (-1, 3)]);
        // One that does not is torn where it must be, and a record that is too large is for the log to refuse.
        let mut large = batches();
        step(&mut large, &[(NONE, 10)]);
        step(&mut large, &[(NONE, 400), (NONE, 400), (NONE, 400), (NONE, 2_000), (NONE, 1)]);
        assert_eq!(shape(large), [(-1, 1), (-1, 2), (-1, 1), (-1, 1), (-1, 1)]);
        assert!(batches().is_empty());
    }

    #[test]
    fn transactions_are_apart() {
        let mut some = batches();
        step(&mut some, &[(NONE, 1), (producer(7), 1), (producer(7), 1), (producer(8), 1), (NONE, 1)]);
        let marker =
            EndTxnMarker { result: TxnResult::Commit, coordinator_epoch: 1, timestamp: TimestampMs(1) };
        some.marker(producer(7).unwrap(), &marker, MarkerEpoch::SameOrLater).unwrap();
        step(&mut some, &[(NONE, 1)]);
        assert_eq!(shape(some), [(-1, 1), (7, 2), (8, 1), (-1, 1), (7, 1), (-1, 1)]);
    }
}
