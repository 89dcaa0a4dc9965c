//! How the files of a partition directory are named: Kafka's rules. Names only, no file is touched.
//!
//! Invariant: `FileName::parse` accepts exactly the names that `FileName` formats (and Kafka writes).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::storage::checkpoint::PARTITION_METADATA_FILE;
use crate::types::Offset;

/// The kinds of file that belong to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Log,
    OffsetIndex,
    TimeIndex,
    TxnIndex,
    ProducerSnapshot,
}

/// What was being done to a file when its process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// In use.
    Live,
    /// Out of use, to be removed.
    Deleted,
    /// Being written by compaction: incomplete.
    Cleaned,
    /// Complete, about to take the place of the live files that it covers.
    Swap,
}

/// The name of a file that belongs to an offset, such as `00000000000000000042.timeindex.deleted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    pub base: Offset,
    pub kind: Kind,
    pub stage: Stage,
}

pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Ours: some of the log is known not to be what was written. Kafka does not look at it.
pub const DAMAGED: &str = "damaged";

/// Whether a file of this name belongs into the directory of a partition.
pub fn is_of_partition(name: &str) -> bool {
    // One that was being replaced.
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    FileName::parse(name).is_some() || [LEADER_EPOCHS, PARTITION_METADATA_FILE, DAMAGED].contains(&name)
}

impl Kind {
    pub const ALL: [Kind; 5] =
        [Kind::Log, Kind::OffsetIndex, Kind::TimeIndex, Kind::TxnIndex, Kind::ProducerSnapshot];

    fn suffix(self) -> &'static str {
        match self {
            Kind::Log => ".log",
            Kind::OffsetIndex => ".index",
            Kind::TimeIndex => ".timeindex",
            Kind::TxnIndex => ".txnindex",
            Kind::ProducerSnapshot => ".snapshot",
        }
    }
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Live, Stage::Deleted, Stage::Cleaned, Stage::Swap];

    fn suffix(self) -> &'static str {
        match self {
            Stage::Live => "",
            Stage::Deleted => ".deleted",
            Stage::Cleaned => ".cleaned",
            Stage::Swap => ".swap",
        }
    }
}

impl FileName {
    pub fn live(base: Offset, kind: Kind) -> FileName {
        FileName { base, kind, stage: Stage::Live }
    }

    pub fn at(self, stage: Stage) -> FileName {
        FileName { stage, ..self }
    }

    /// The offset, kind and stage of a file name; `None` for a file that belongs to no offset.
    pub fn parse(name: &str) -> Option<FileName> {
        let dot = name.find('.')?;
        let (digits, rest) = name.split_at(dot);
        // Kafka pads to 20 digits; an offset has 19 at most.
        if digits.len() != 20 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let base = Offset(digits.parse().ok()?);
        for kind in Kind::ALL {
            let Some(stage) = rest.strip_prefix(kind.suffix()) else { continue };
            if let Some(&stage) = Stage::ALL.iter().find(|s| s.suffix() == stage) {
                return Some(FileName { base, kind, stage });
            }
        }
        None
    }

    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}{}{}", self.base.0, self.kind.suffix(), self.stage.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::{FileName, Kind, Stage};
    use crate::types::Offset;

    #[test]
    fn names_are_kafkas() {
        let name = FileName::live(Offset(42), Kind::TimeIndex);
        assert_eq!(name.to_string(), "00000000000000000042.timeindex");
        assert_eq!(name.at(Stage::Deleted).to_string(), "00000000000000000042.timeindex.deleted");
        for kind in Kind::ALL {
            for stage in Stage::ALL {
                let name = FileName { base: Offset(i64::MAX), kind, stage };
                assert_eq!(FileName::parse(&name.to_string()), Some(name));
            }
        }
        for other in
            ["partition.metadata", "42.log", "00000000000000000042.lag", "00000000000000000042.log.tmp"]
        {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }
}
