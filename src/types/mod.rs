//! Layer 0: the words of the code. Identifiers, offsets, epochs and times as types of their own, so that none can be
//! taken for another; no logic, no dependencies on the rest.

mod error_code;

use std::fmt;
use std::sync::Arc;

pub use error_code::ErrorCode;
pub use uuid::Uuid;

/// Defines an integer newtype with the traits that every id, offset and epoch has.
macro_rules! int_newtype {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$int> for $name {
            fn from(value: $int) -> Self {
                $name(value)
            }
        }
    };
}

int_newtype! {
    /// A node of the cluster: broker, controller or both (`node.id`).
    NodeId(i32)
}
int_newtype! {
    /// The index of a partition within its topic.
    PartitionIndex(i32)
}
int_newtype! {
    /// A position in a partition's log: the number of a record. Where it bounds a range it is exclusive.
    Offset(i64)
}
int_newtype! {
    /// The term of office of a partition leader; grows with each election.
    LeaderEpoch(i32)
}
int_newtype! {
    /// The version of a partition's replica state (leader, ISR, replicas); grows with each change.
    PartitionEpoch(i32)
}
int_newtype! {
    /// The registration of a broker: the metadata version at which it registered.
    BrokerEpoch(i64)
}
int_newtype! {
    /// The identity of an idempotent or transactional producer.
    ProducerId(i64)
}
int_newtype! {
    /// The epoch of a producer id; a higher one fences the lower.
    ProducerEpoch(i16)
}
int_newtype! {
    /// Milliseconds since 1970-01-01T00:00:00Z: record timestamps and the wall clock.
    TimestampMs(i64)
}

int_newtype! {
    /// Milliseconds on a clock that never goes back: deadlines and lag. Only differences mean anything.
    MonotonicMs(i64)
}

impl NodeId {
    /// No node: a leaderless partition, or a fetch by a consumer.
    pub const NONE: NodeId = NodeId(-1);
}

impl Offset {
    pub const ZERO: Offset = Offset(0);
    /// Kafka's mark for an offset that is not known.
    pub const UNKNOWN: Offset = Offset(-1);

    /// The offset `records` further on. Saturates, for files may say anything.
    #[must_use]
    pub fn plus(self, records: i64) -> Offset {
        Offset(self.0.saturating_add(records))
    }

    /// How many records lie between `earlier` and this offset.
    pub fn since(self, earlier: Offset) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl LeaderEpoch {
    pub const ZERO: LeaderEpoch = LeaderEpoch(0);
    /// Kafka's mark for "no epoch given".
    pub const UNKNOWN: LeaderEpoch = LeaderEpoch(-1);
}

impl BrokerEpoch {
    pub const UNKNOWN: BrokerEpoch = BrokerEpoch(-1);
}

impl ProducerId {
    /// The mark of a batch that no idempotent producer wrote.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl TimestampMs {
    /// Kafka's mark for "no timestamp".
    pub const NONE: TimestampMs = TimestampMs(-1);

    /// The moment `ms` earlier.
    #[must_use]
    pub fn minus(self, ms: i64) -> TimestampMs {
        TimestampMs(self.0.saturating_sub(ms))
    }
}

impl MonotonicMs {
    /// The moment `ms` later.
    #[must_use]
    pub fn plus(self, ms: i64) -> MonotonicMs {
        MonotonicMs(self.0.saturating_add(ms))
    }

    /// How many milliseconds have passed since `earlier`.
    pub fn since(self, earlier: MonotonicMs) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The identity of a topic; a topic that is deleted and created again has another.
pub type TopicId = Uuid;

/// The identity of a log directory (KIP-858).
pub type DirectoryId = Uuid;

/// The reserved directory ids of KIP-858.
pub mod directory_id {
    use super::{DirectoryId, Uuid};

    /// Not assigned to a directory yet.
    pub const UNASSIGNED: DirectoryId = Uuid::from_u128(0);
    /// In a directory that is offline.
    pub const LOST: DirectoryId = Uuid::from_u128(1);
    /// Hosted by a broker that knows no directory ids.
    pub const MIGRATING: DirectoryId = Uuid::from_u128(2);
}

/// A partition by the name of its topic: how requests and directories name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: PartitionIndex,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A partition by the identity of its topic: how the broker's own tables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicIdPartition {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// `User` for clients.
    pub kind: Arc<str>,
    pub name: Arc<str>,
    /// Whether it showed a delegation token.
    pub token_authenticated: bool,
}

impl Principal {
    /// Kafka's name for who has not said who they are.
    pub fn anonymous() -> Principal {
        Principal { kind: "User".into(), name: "ANONYMOUS".into(), token_authenticated: false }
    }
}

/// Kafka's text form of an id: URL-safe base64 of the 16 bytes without padding, 22 letters.
pub mod kafka_uuid {
    use super::Uuid;

    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    /// The 22 letters of `id`.
    pub fn format(id: Uuid) -> String {
        let bits = id.as_u128();
        // 128 bits are 21 groups of six and a last one of two, which is padded with zeros on the right.
        (0..22)
            .map(|group| {
                let shift = 122 - 6 * group;
                let six = if shift >= 0 { bits >> shift } else { bits << -shift };
                ALPHABET[(six & 63) as usize] as char
            })
            .collect()
    }

    /// The id that `text` names; `None` when it is not 22 letters of the alphabet. Bits beyond the 128th are dropped, as
    /// Java does: ids that people have made up have some.
    pub fn parse(text: &str) -> Option<Uuid> {
        let letters = text.trim_end_matches('=').as_bytes();
        if letters.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (group, letter) in letters.iter().enumerate() {
            let six = ALPHABET.iter().position(|a| a == letter)? as u128;
            bits = if group < 21 { bits << 6 | six } else { bits << 2 | six >> 4 };
        }
        Some(Uuid::from_u128(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::{Uuid, kafka_uuid};

    #[test]
    fn ids_read_as_kafka_writes_them() {
        // Both from org.apache.kafka.common.Uuid: ZERO_UUID, and new Uuid(1, 2).
        assert_eq!(kafka_uuid::format(Uuid::nil()), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(kafka_uuid::format(Uuid::from_u128((1 << 64) | 2)), "AAAAAAAAAAEAAAAAAAAAAg");
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = Uuid::from_u128(bits);
            assert_eq!(kafka_uuid::parse(&kafka_uuid::format(id)), Some(id));
        }
        assert_eq!(kafka_uuid::parse("AAAAAAAAAAEAAAAAAAAAAk"), Some(Uuid::from_u128((1 << 64) | 2)));
        assert_eq!(kafka_uuid::parse("short"), None);
        assert_eq!(kafka_uuid::parse("AAAAAAAAAAEAAAAAAAAAA!"), None);
    }
}
