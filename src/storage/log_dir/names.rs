//! How directories of partitions are named: `topic-N`, and with `.<32 hex digits>-<fate>` behind it when the partition does
//! not live there. Names only.

use crate::types::{PartitionIndex, TopicPartition, Uuid};

/// The longest name that file systems take.
const NAME_MAX: usize = 255;

/// What is to become of a partition's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The partition lives here.
    Live,
    /// To be removed.
    Delete,
    /// A copy that is to replace the one in another directory.
    Future,
    /// Of a partition that should not be here; kept for the operator to look at.
    Stray,
}

/// The name of a partition's directory, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirName {
    /// Its topic may have been cut short when the directory was retired.
    pub partition: TopicPartition,
    pub fate: Fate,
}

impl Fate {
    const RETIRED: [Fate; 3] = [Fate::Delete, Fate::Future, Fate::Stray];

    fn suffix(self) -> &'static str {
        match self {
            Fate::Live => "",
            Fate::Delete => "-delete",
            Fate::Future => "-future",
            Fate::Stray => "-stray",
        }
    }
}

impl DirName {
    /// `None` for a name that is none of a partition's directory, and for the directory of the metadata log.
    pub fn parse(name: &str) -> Option<DirName> {
        for fate in Fate::RETIRED {
            let Some(rest) = name.strip_suffix(fate.suffix()) else { continue };
            let Some((rest, unique)) = rest.rsplit_once('.') else { continue };
            if unique.len() == 32 && unique.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Some(DirName { partition: parse_partition(rest)?, fate });
            }
        }
        Some(DirName { partition: parse_partition(name)?, fate: Fate::Live })
    }
}

/// Whether it is the name of a partition's directory, that of the metadata log among them.
pub fn is_partition_dir(name: &str) -> bool {
    name == "__cluster_metadata-0" || DirName::parse(name).is_some()
}

fn parse_partition(name: &str) -> Option<TopicPartition> {
    let (topic, index) = name.rsplit_once('-')?;
    let digits = !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
    let legal = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'.' | b'_' | b'-');
    if topic.is_empty() || !digits || !topic.bytes().all(legal) || topic == "__cluster_metadata" {
        return None;
    }
    Some(TopicPartition { topic: topic.into(), partition: PartitionIndex(index.parse().ok()?) })
}

/// The name for the directory of a partition that no longer lives there.
pub fn retired(partition: &TopicPartition, fate: Fate, unique: Uuid) -> String {
    let suffix = format!("-{}.{}{}", partition.partition, unique.as_simple(), fate.suffix());
    // Topic names are ASCII, so any place is good to cut.
    let topic = &partition.topic[..partition.topic.len().min(NAME_MAX - suffix.len())];
    format!("{topic}{suffix}")
}

/// The name under which a log is set aside when the copy of this name takes its place. Where there are both, the copy is whole.
pub fn set_aside_for(copy: &str) -> Option<String> {
    let stem = copy.strip_suffix(Fate::Future.suffix())?;
    Some(format!("{stem}{}", Fate::Delete.suffix()))
}

#[cfg(test)]
mod tests {
    use super::{DirName, Fate, Uuid, retired};
    use crate::types::TopicPartition;

    #[test]
    fn names_are_understood() {
        let parsed = |name: &str| DirName::parse(name).map(|name| (name.partition.to_string(), name.fate));
        assert_eq!(parsed("orders-12"), Some(("orders-12".into(), Fate::Live)));
        assert_eq!(parsed("a-b.c-delete-3"), Some(("a-b.c-delete-3".into(), Fate::Live)));
        let unique = "0123456789abcdef0123456789abcdef";
        assert_eq!(parsed(&format!("orders-1.{unique}-delete")), Some(("orders-1".into(), Fate::Delete)));
        assert_eq!(parsed(&format!("orders-1.{unique}-stray")), Some(("orders-1".into(), Fate::Stray)));
        for other in [
            "__cluster_metadata-0",
            "lost+found",
            "orders",
            "-1",
            "orders-",
            "or ders-1",
            "orders-99999999999",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[test]
    fn retired_names_fit_and_are_understood() {
        let unique = Uuid::from_u128(7);
        let partition = TopicPartition::new("t".repeat(249), 1234);
        let name = retired(&partition, Fate::Delete, unique);
        assert_eq!(name.len(), 255);
        assert_eq!(DirName::parse(&name).unwrap().fate, Fate::Delete);
        let name = retired(&TopicPartition::new("orders", 3), Fate::Future, unique);
        assert_eq!(name, "orders-3.00000000000000000000000000000007-future");
    }
}
