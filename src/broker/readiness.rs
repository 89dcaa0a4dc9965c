//! Whether this broker serves, and what it is that it still waits for, with numbers.
//!
//! A handle, cheap to clone: the start says how far it is, and whoever wants to know asks. Must not know who that is. Invariant: who
//! asks has an answer soon, also while a disk hangs.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::blocking::blocking;
use super::clock;
use super::log_dirs::LogDirs;
use super::reconciler::Reconciled;
use crate::controller::MetadataHandle;
use crate::storage::locked;
use crate::storage::log_dir::Left;
use crate::types::{NodeId, Offset};

/// Who asks waits no longer than this for what is to be checked to be counted.
const COUNT_LIMIT: Duration = Duration::from_secs(1);
/// A start that takes long says so often how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<Phase>>);

/// How far the start is.
#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Joining,
    Registering,
    Opening(Arc<LogDirs>),
    /// It has caught up once, and is in service whenever the metadata has it unfenced.
    Following(Reconciled),
}

/// Why a broker does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It does not have the metadata yet.
    Joining { leader: Option<NodeId>, applied: Offset, log_end: Offset },
    /// The active controller does not know it yet.
    Registering,
    /// Logs are being opened, in these directories.
    Opening(Vec<(PathBuf, Left)>),
    /// It is fenced. With the version of the metadata that has taken effect here, and the newest that is known.
    Fenced { reached: Offset, known: Offset },
}

impl Readiness {
    pub(super) fn registers(&self) {
        self.enter(Phase::Registering);
    }

    pub(super) fn opens(&self, dirs: &Arc<LogDirs>) {
        dirs.expect_opening();
        self.enter(Phase::Opening(dirs.clone()));
    }

    pub(super) fn follows(&self, reconciled: &Reconciled) {
        let before = self.enter(Phase::Following(reconciled.clone()));
        if let Phase::Opening(dirs) = before {
            dirs.opened();
        }
    }

    fn enter(&self, phase: Phase) -> Phase {
        std::mem::replace(&mut *locked(&self.0), phase)
    }

    /// Why broker `me` does not serve; `None` if it does.
    pub async fn not_ready(&self, me: NodeId, metadata: &MetadataHandle) -> Option<NotReady> {
        let phase = locked(&self.0).clone();
        Some(match phase {
            Phase::Joining => {
                let status = metadata.quorum_status(clock::wall());
                let mut members = status.voters.iter().chain(&status.observers);
                let log_end = members.find(|member| member.node == me).and_then(|member| member.log_end);
                let applied = status.high_watermark;
                NotReady::Joining { leader: status.leader, applied, log_end: log_end.unwrap_or(applied) }
            }
            Phase::Registering => NotReady::Registering,
            Phase::Opening(dirs) => {
                let counted = dirs.clone();
                let count = blocking(move || counted.count_left());
                // What hangs is not counted, and said to be so.
                let _ = tokio::time::timeout(COUNT_LIMIT, count).await;
                NotReady::Opening(dirs.left().map(|(path, left)| (path.to_owned(), left)).collect())
            }
            Phase::Following(reconciled) => {
                let image = metadata.image();
                if image.brokers.get(me).is_some_and(|broker| !broker.fenced) {
                    return None;
                }
                let (reached, known) = (reconciled.version().offset(), image.version.offset());
                NotReady::Fenced { reached, known: known.max(reached) }
            }
        })
    }

    /// Says from time to time how far the opening of logs is, as long as it lasts.
    pub(super) async fn tell(self, me: NodeId, metadata: MetadataHandle) {
        loop {
            tokio::time::sleep(TELL_INTERVAL).await;
            match self.not_ready(me, &metadata).await {
                Some(opening @ NotReady::Opening(_)) => tracing::info!("Broker {me} starts: {opening}"),
                _ => return,
            }
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Joining { leader: None, applied, .. } => {
                write!(f, "no leader of the metadata quorum is known, and the metadata only up to {applied}")
            }
            NotReady::Joining { leader: Some(leader), applied, log_end } => write!(
                f,
                "it has the metadata up to {applied}, of {log_end} that were received from controller {leader}"
            ),
            NotReady::Registering => write!(f, "it is not registered yet"),
            NotReady::Opening(directories) => {
                let total = directories.iter().fold(Left::default(), |mut total, (_, left)| {
                    total.logs += left.logs;
                    total.uncounted += left.uncounted;
                    total.unchecked += left.unchecked;
                    total
                });
                if total.logs == 0 {
                    return write!(f, "its logs are open, and become part of the cluster");
                }
                write!(f, "it opens its logs: {}", Told(&total))?;
                for (path, left) in directories {
                    write!(f, "; {}: {}", path.display(), Told(left))?;
                }
                Ok(())
            }
            NotReady::Fenced { reached, known } => {
                write!(f, "it is fenced, and has taken in the metadata up to {reached} of {known}")
            }
        }
    }
}

/// What is left, in words.
struct Told<'a>(&'a Left);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left { logs, uncounted, unchecked } = self.0;
        let (segments, bytes) = (unchecked.segments, unchecked.bytes);
        write!(f, "{logs} left, with {segments} segments and {bytes} bytes to check")?;
        match uncounted {
            0 => Ok(()),
            _ => write!(f, ", without {uncounted} that are not counted yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::log::Amount;

    #[test]
    fn the_reason_comes_with_numbers() {
        let left = |logs, uncounted, segments, bytes| Left {
            logs,
            uncounted,
            unchecked: Amount { segments, bytes },
        };
        let told = |reason: NotReady| reason.to_string();
        let two = [("/a".into(), left(3, 1, 4, 500)), ("/b".into(), left(2, 0, 2, 70))];
        assert_eq!(
            told(NotReady::Opening(two.into())),
            "it opens its logs: 5 left, with 6 segments and 570 bytes to check, without 1 that are not counted yet; \
             /a: 3 left, with 4 segments and 500 bytes to check, without 1 that are not counted yet; \
             /b: 2 left, with 2 segments and 70 bytes to check"
        );
        assert_eq!(
            told(NotReady::Opening(vec![("/a".into(), Left::default())])),
            "its logs are open, and become part of the cluster"
        );
        let (leader, applied, log_end) = (Some(NodeId(3)), Offset(7), Offset(90));
        assert_eq!(
            told(NotReady::Joining { leader, applied, log_end }),
            "it has the metadata up to 7, of 90 that were received from controller 3"
        );
        assert!(told(NotReady::Joining { leader: None, applied, log_end }).contains("only up to 7"));
        assert!(told(NotReady::Fenced { reached: Offset(5), known: Offset(8) }).ends_with("up to 5 of 8"));
    }
}
