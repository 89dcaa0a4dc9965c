//! How a quorum begins whose voters formatted themselves: each asks all the others before it has any part in the quorum.
//!
//! A voter that finds its disk empty cannot tell a new quorum from a running one whose disk it has lost. In the latter it
//! may have given a vote, or acknowledged entries that were committed by that, and of both it knows no more: to vote, or to
//! stand for election, could then give a term two leaders, or lose what was committed. An operator who formats a directory
//! answers for that. A voter that formatted itself is silent until it knows better, and it knows:
//! - that the quorum is new when all voters of the configuration say that they have formatted themselves and know no more
//!   either. None of them has ever voted or held a log, for whoever has not decided does neither, and remembers on disk that
//!   it has not decided: so there is nothing that could be contradicted. They are the founders, with their directories.
//! - that it is a founder when another one that has decided says so and names the very directory that this voter has: then
//!   this directory has not been lost since, and what it remembers is everything.
//!
//! In any other case its disk was lost, or others were formatted by hand, and it ends with that reason. A majority would not
//! do for a beginning: the one that is missing may hold the log.
//!
//! Invariant: what is on disk says that the beginning is open until the founders are, and nothing else of Raft is there
//! before.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::controller::peers::{Lane, PeerError, Peers};
use crate::controller::raft_types::{Member, Raft, RaftNodeId, raft_id};
use crate::controller::rpc::Refusal;
use crate::storage::disk::{Disk, read_file, write_file_atomically};
use crate::types::{DirectoryId, NodeId, kafka_uuid};
use crate::wire::messages::raft::Founder;
use crate::wire::messages::{RaftFoundingRequest, RaftFoundingResponse};

/// In the metadata directory of a voter that formatted itself.
const FILE: &str = "quorum-founding";
const VERSION: &str = "0";
/// How long the others may take to answer, and between two rounds.
const ASK_LIMIT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(100);
/// After this time it is said who is waited for.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// The voters with which a quorum began, each with its directory.
pub type Founders = BTreeMap<NodeId, DirectoryId>;

/// How far a voter is with its quorum's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Founding {
    /// An operator has formatted this node, or it has no part in the beginning.
    ByHand,
    /// It formatted itself, and does not know whether the quorum is new.
    Open,
    Done(Founders),
    /// This voter runs, and knows nothing of this node's directory.
    Lost(NodeId),
    /// It is known how the quorum begins, and this node could not: why.
    Failed(String),
}

impl Founding {
    /// Whether the node may have a part in its quorum.
    pub fn is_over(&self) -> bool {
        matches!(self, Founding::ByHand | Founding::Done(_))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    #[error("{path}: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}: not understood: '{line}'", path = path.display())]
    Malformed { path: PathBuf, line: String },
}

/// Notes in a metadata directory that is about to be formatted that its node does so by itself.
pub fn begin(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    write_file_atomically(disk, &dir.join(FILE), format!("{VERSION}\n").as_bytes())
}

/// What is on disk.
pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Founding, FoundingError> {
    let path = dir.join(FILE);
    let bytes = match read_file(disk, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Founding::ByHand),
        Err(error) => return Err(FoundingError::Io { path, error }),
    };
    let text = String::from_utf8_lossy(&bytes);
    let malformed = |line: &str| FoundingError::Malformed { path: path.clone(), line: line.to_owned() };
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return Err(malformed(text.lines().next().unwrap_or_default()));
    }
    let mut founders = Founders::new();
    for line in lines {
        let parts = line.split_once(' ');
        let founder =
            parts.and_then(|(id, directory)| Some((id.parse().ok()?, kafka_uuid::parse(directory)?)));
        let (id, directory) = founder.ok_or_else(|| malformed(line))?;
        founders.insert(NodeId(id), directory);
    }
    Ok(if founders.is_empty() { Founding::Open } else { Founding::Done(founders) })
}

fn write(disk: &dyn Disk, dir: &Path, founders: &Founders) -> io::Result<()> {
    let line =
        |(id, directory): (&NodeId, &DirectoryId)| format!("{id} {}\n", kafka_uuid::format(*directory));
    let text: String = std::iter::once(format!("{VERSION}\n")).chain(founders.iter().map(line)).collect();
    write_file_atomically(disk, &dir.join(FILE), text.as_bytes())
}

const BY_HAND: i8 = 0;
const OPEN: i8 = 1;
const DONE: i8 = 2;

/// What this node answers to another one that asks.
pub fn response(founding: &Founding, directory: DirectoryId) -> RaftFoundingResponse {
    let (state, founders) = match founding {
        Founding::ByHand => (BY_HAND, None),
        // One that has lost its disk, or cannot write to it, has not decided either.
        Founding::Open | Founding::Lost(_) | Founding::Failed(_) => (OPEN, None),
        Founding::Done(founders) => (DONE, Some(founders)),
    };
    let founder = |(id, directory): (&NodeId, &DirectoryId)| Founder {
        node_id: id.0,
        directory_id: *directory,
        ..Founder::default()
    };
    RaftFoundingResponse {
        state,
        directory_id: directory,
        founders: founders.into_iter().flatten().map(founder).collect(),
        ..RaftFoundingResponse::default()
    }
}

/// What another voter says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    ByHand,
    Open(DirectoryId),
    Done(Founders),
}

fn answer(response: &RaftFoundingResponse) -> Answer {
    match response.state {
        OPEN => Answer::Open(response.directory_id),
        DONE => {
            let founder = |founder: &Founder| (NodeId(founder.node_id), founder.directory_id);
            Answer::Done(response.founders.iter().map(founder).collect())
        }
        // Whatever a newer one says: it is not known to be new.
        _ => Answer::ByHand,
    }
}

/// What follows from the answers of a round; `Open` while too few have answered.
fn decide(me: (NodeId, DirectoryId), others: &[NodeId], answers: &BTreeMap<NodeId, Answer>) -> Founding {
    let mut founders = Founders::from([me]);
    let mut lost = None;
    for (node, answer) in answers {
        match answer {
            Answer::Done(known) if known.get(&me.0) == Some(&me.1) => return Founding::Done(known.clone()),
            Answer::Done(_) | Answer::ByHand => lost = Some(*node),
            Answer::Open(directory) => drop(founders.insert(*node, *directory)),
        }
    }
    match lost {
        Some(node) => Founding::Lost(node),
        None if others.iter().all(|node| founders.contains_key(node)) => Founding::Done(founders),
        None => Founding::Open,
    }
}

/// The task of a voter whose beginning is open.
pub struct Foundation {
    pub raft: Raft,
    pub peers: Arc<Peers>,
    pub voters: BTreeMap<NodeId, Member>,
    pub disk: Arc<dyn Disk>,
    /// The metadata directory.
    pub dir: PathBuf,
    pub founding: watch::Sender<Founding>,
}

impl Foundation {
    /// Asks the others until it is known how the quorum begins, and begins.
    pub async fn run(self) {
        let me = (self.peers.me.node, self.peers.me.directory);
        let others: Vec<NodeId> = self.voters.keys().copied().filter(|node| *node != me.0).collect();
        let tell_at = Instant::now() + TELL_AFTER;
        let mut told = None;
        let decided = loop {
            let asked = others.iter().map(|node| async { Some((*node, self.ask(*node).await?)) });
            let answers: BTreeMap<NodeId, Answer> = join_all(asked).await.into_iter().flatten().collect();
            match decide(me, &others, &answers) {
                Founding::Open => {}
                decided => break decided,
            }
            let missing: Vec<NodeId> =
                others.iter().copied().filter(|node| !answers.contains_key(node)).collect();
            if Instant::now() >= tell_at && told.as_ref() != Some(&missing) {
                tracing::info!(
                    "This node was formatted as it started, and has no vote before all other voters have said that the \
                     quorum is new; waiting for {}",
                    missing.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
                );
                told = Some(missing);
            }
            sleep(PAUSE).await;
        };
        let begun = match &decided {
            Founding::Done(founders) => self.begin(founders).await,
            _ => Ok(()),
        };
        self.founding
            .send_replace(begun.map_or_else(|error| Founding::Failed(error.to_string()), |()| decided));
    }

    async fn begin(&self, founders: &Founders) -> io::Result<()> {
        let (disk, dir, founders) = (Arc::clone(&self.disk), self.dir.clone(), founders.clone());
        let written = tokio::task::spawn_blocking(move || write(&*disk, &dir, &founders));
        written.await.map_err(io::Error::other)??;
        // All founders begin with the same entry, as those that were formatted by hand do.
        let members: BTreeMap<RaftNodeId, Member> =
            self.voters.iter().map(|(node, member)| (raft_id(*node), member.clone())).collect();
        self.raft.initialize(members).await.map_err(io::Error::other)
    }

    async fn ask(&self, node: NodeId) -> Option<Answer> {
        let asked = async {
            let address = self.peers.address(node, self.voters.get(&node)).ok_or(PeerError::NoAddress)?;
            let connection = self.peers.connect(node, &address, Lane::Raft, ASK_LIMIT).await?;
            let message =
                RaftFoundingRequest { sender: self.peers.me.sender(Some(node)), ..Default::default() };
            let response = connection.call(&message, ASK_LIMIT).await?;
            Refusal::of(response.refusal).map_err(|refusal| {
                self.peers.tell_refusal(node, refusal, false);
                PeerError::Refused(node, refusal)
            })?;
            Ok::<_, PeerError>(answer(&response))
        };
        match timeout(ASK_LIMIT, asked).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                tracing::debug!(%node, %error, "does not say how the quorum began");
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim_disk::SimDisk;
    use crate::types::Uuid;

    const ME: (NodeId, DirectoryId) = (NodeId(1), Uuid::from_u128(101));

    fn directory(node: i32, disk: u128) -> DirectoryId {
        DirectoryId::from_u128(disk * 100 + u128::try_from(node).unwrap())
    }

    /// `o`: open, `h`: by hand, `f`: done with this node's directory, `x`: done with another one of this node, `-`: silent.
    fn decided(answers: &str) -> Founding {
        let others = [NodeId(2), NodeId(3)];
        let all = |mine: u128| {
            Founders::from([
                (ME.0, directory(1, mine)),
                (NodeId(2), directory(2, 1)),
                (NodeId(3), directory(3, 1)),
            ])
        };
        let answers = others.iter().zip(answers.chars()).filter_map(|(node, state)| {
            let answer = match state {
                'o' => Answer::Open(directory(node.0, 1)),
                'h' => Answer::ByHand,
                'f' => Answer::Done(all(1)),
                'x' => Answer::Done(all(2)),
                _ => return None,
            };
            Some((*node, answer))
        });
        decide(ME, &others, &answers.collect())
    }

    #[test]
    fn a_quorum_is_new_if_all_say_so_or_one_knows_this_disk() {
        let founders = Founders::from([ME, (NodeId(2), directory(2, 1)), (NodeId(3), directory(3, 1))]);
        for answers in ["oo", "of", "f-", "-f", "ff", "hf", "xf"] {
            assert_eq!(decided(answers), Founding::Done(founders.clone()), "{answers}");
        }
        // A majority is not enough: the third may have the log.
        for answers in ["o-", "-o", "--"] {
            assert_eq!(decided(answers), Founding::Open, "{answers}");
        }
        for (answers, who) in [("oh", 3), ("h-", 2), ("-x", 3), ("ox", 3)] {
            assert_eq!(decided(answers), Founding::Lost(NodeId(who)), "{answers}");
        }
    }

    #[test]
    fn how_far_it_is_survives_a_crash() {
        let (disk, dir) = (SimDisk::new(), Path::new("/meta"));
        disk.create_dir_all(dir).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), Founding::ByHand);
        begin(&disk, dir).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), Founding::Open);
        let founders = Founders::from([ME, (NodeId(2), directory(2, 1))]);
        write(&disk, dir, &founders).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), Founding::Done(founders.clone()));
        let done = Founding::Done(founders.clone());
        assert_eq!(answer(&response(&done, ME.1)), Answer::Done(founders));
        for text in ["", "1\n", "0\nx", "0\n1 short"] {
            write_file_atomically(&disk, &dir.join(FILE), text.as_bytes()).unwrap();
            assert!(read(&disk, dir).is_err(), "{text:?}");
        }
    }
}
