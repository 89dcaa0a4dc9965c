//! The quorum's clock: when the leader beats, and when a voter that misses its leader stands for election.
//!
//! openraft's own timers are off: it would count what an isolated voter does as elections, and would wait for a lease after
//! a crash that everybody can see. Knows no records. Invariants: nobody stands for election without having asked a
//! majority whether they miss the leader too; a member that is alone neither beats nor waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::ServerState;
use openraft::raft::VoteRequest;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};

use crate::controller::observers::Observers;
use crate::controller::peers::{Lane, PeerError, Peers};
use crate::controller::pulse::{Pulse, Verdict};
use crate::controller::quorum::{Metrics, QuorumView};
use crate::controller::raft_store::LogStore;
use crate::controller::raft_types::{Raft, RaftNodeId, Vote, node_id, raft_id};
use crate::controller::rpc::{self, Refusal};
use crate::controller::service::ServiceParts;
use crate::controller::start::Timing;
use crate::peer::{Address, CallError, DialError};
use crate::types::NodeId;

/// A voter that sees its leader crash waits so long at most, so that not all stand at once.
const CRASH_PAUSE_MS: u64 = 20;
/// The same for one that has just started and knows no leader, and for one that was not elected.
const AGAIN_PAUSE_MS: u64 = 150;
/// How long the others may take to say whether they would vote.
const PROBE_LIMIT: Duration = Duration::from_millis(500);
const DIAL_LIMIT: Duration = Duration::from_millis(500);
/// How long the connection to a leader that cannot be reached rests.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// What the clock works with.
pub struct Pace {
    raft: Raft,
    store: LogStore,
    view: QuorumView,
    peers: Arc<Peers>,
    observers: Arc<Observers>,
    pulse: Arc<Pulse>,
    timing: Timing,
}

impl Pace {
    pub fn new(parts: &ServiceParts, timing: Timing) -> Pace {
        Pace {
            raft: parts.raft.clone(),
            store: parts.store.clone(),
            view: parts.view.clone(),
            peers: Arc::clone(&parts.peers),
            observers: Arc::clone(&parts.observers),
            pulse: Arc::clone(&parts.pulse),
            timing,
        }
    }

    /// Keeps time as long as the member runs.
    pub async fn run(self) {
        let mut metrics = self.view.metrics();
        let mut ticking = false;
        // Nobody has been heard yet: the first election is soon.
        let mut stand_at = Instant::now() + random(AGAIN_PAUSE_MS);
        loop {
            let part = part(&metrics.borrow_and_update());
            if part.has_ended {
                return;
            }
            // openraft lets a leader that is no voter any more step down with its ticks.
            if ticking != part.has_others {
                ticking = part.has_others;
                self.raft.runtime_config().tick(ticking);
            }
            match part.role {
                Role::Leads if part.has_others => self.beat(&mut metrics).await,
                Role::Leads | Role::Watches => {
                    if metrics.changed().await.is_err() {
                        return;
                    }
                }
                Role::Votes => self.follow(&mut metrics, &mut stand_at).await,
            }
        }
    }

    /// Beats until this node leads no more, or is alone.
    async fn beat(&self, metrics: &mut watch::Receiver<Metrics>) {
        let mut beats = tokio::time::interval(self.timing.heartbeat);
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    if self.raft.trigger().heartbeat().await.is_err() {
                        return;
                    }
                }
                changed = metrics.changed() => {
                    let now = part(&metrics.borrow_and_update());
                    if changed.is_err() || now.has_ended || now.role != Role::Leads || !now.has_others {
                        break;
                    }
                }
            }
        }
        self.observers.clear();
    }

    /// Waits for the time to stand for election, and does; returns when something has changed.
    async fn follow(&self, metrics: &mut watch::Receiver<Metrics>, stand_at: &mut Instant) {
        let mut verdicts = self.pulse.verdicts();
        let led_by = metrics.borrow().current_leader;
        let against = |verdict: &Verdict| led_by.is_some_and(|leader| verdict.is_against(leader));
        let changes = |now: &Metrics| part(now).role != Role::Votes || now.current_leader != led_by;
        tokio::select! {
            changed = async { metrics.wait_for(changes).await.map(|now| now.current_leader) } => {
                *stand_at = Instant::now() + match changed {
                    // A leader that has just begun has its time.
                    Ok(Some(_)) => self.patience(),
                    Ok(None) | Err(_) => self.recovery(),
                };
            }
            verdict = async { verdicts.wait_for(against).await.map(|verdict| *verdict) } => {
                sleep(random(CRASH_PAUSE_MS)).await;
                if metrics.borrow().current_leader == led_by && !self.stand(metrics).await {
                    // A leader that only this node cannot call is kept, for as long as that lasts.
                    let calm = verdict.is_ok_and(|verdict| matches!(verdict, Verdict::Deaf(_)));
                    sleep(if calm { self.recovery() } else { random(AGAIN_PAUSE_MS) }).await;
                }
            }
            () = sleep_until(*stand_at) => {
                let due = self.pulse.last_heard().map(|at| Instant::from_std(at) + self.patience());
                match due {
                    Some(due) if due > Instant::now() => *stand_at = due,
                    _ => {
                        self.stand(metrics).await;
                        *stand_at = Instant::now() + self.recovery();
                    }
                }
            }
        }
    }

    /// How long an election may take before the next one.
    fn recovery(&self) -> Duration {
        self.timing.election_timeout_min / 4 + random(AGAIN_PAUSE_MS)
    }

    /// How long a silent leader is waited for, this time.
    fn patience(&self) -> Duration {
        let Timing { election_timeout_min: min, election_timeout_max: max, .. } = self.timing;
        min + rand::random_range(Duration::ZERO..=max.saturating_sub(min))
    }

    /// Stands for election, if a majority says that it would vote for this node.
    async fn stand(&self, metrics: &watch::Receiver<Metrics>) -> bool {
        let configs = metrics.borrow().membership_config.membership().get_joint_config().clone();
        let me = raft_id(self.peers.me.node);
        let Some(vote) = self.vote().await else { return false };
        if self.pulse.elects_other_than(me) || !self.would_win(me, vote, &configs).await {
            return false;
        }
        // Another may have been faster, and has this node's vote by now.
        if self.vote().await != Some(vote) {
            return false;
        }
        tracing::debug!("standing for election");
        self.pulse.stands(me);
        // A member that has ended elects nobody.
        self.raft.trigger().elect().await.is_ok()
    }

    /// The vote of this node, as long as the member runs.
    async fn vote(&self) -> Option<Vote> {
        self.raft.with_raft_state(|state| *state.vote_ref()).await.ok()
    }

    async fn would_win(&self, me: RaftNodeId, vote: Vote, configs: &[BTreeSet<RaftNodeId>]) -> bool {
        let next = Vote::new(vote.leader_id.term + 1, me);
        let request = VoteRequest { vote: next, last_log_id: self.store.last_log_id() };
        let others: BTreeSet<RaftNodeId> = configs.iter().flatten().copied().filter(|id| *id != me).collect();
        let request = &request;
        let ask = |id| async move { (id, self.probe(node_id(id), request).await) };
        let mut asked: FuturesUnordered<_> = others.into_iter().map(ask).collect();
        let mut granted = BTreeSet::from([me]);
        let wins = |granted: &BTreeSet<RaftNodeId>| {
            configs.iter().all(|config| config.intersection(granted).count() > config.len() / 2)
        };
        while !wins(&granted) {
            match asked.next().await {
                Some((id, Ok(true))) => drop(granted.insert(id)),
                Some((id, answer)) => tracing::debug!(id, ?answer, "no vote would be had"),
                None => return false,
            }
        }
        true
    }

    /// Asks a voter whether it would vote for this node.
    async fn probe(&self, node: NodeId, request: &VoteRequest<RaftNodeId>) -> Result<bool, PeerError> {
        let asked = async {
            let address = self.view.address(node).ok_or(PeerError::NoAddress)?;
            let connection = self.peers.connect(node, &address, Lane::Raft, DIAL_LIMIT).await?;
            let directory = self.view.member(node).map(|member| member.directory_id).unwrap_or_default();
            let message = rpc::vote_request(self.peers.me.sender_to(node, directory), true, request);
            let answer = connection.call(&message, PROBE_LIMIT).await?;
            Refusal::of(answer.refusal).map_err(|refusal| {
                self.peers.tell_refusal(node, refusal, false);
                PeerError::Refused(node, refusal)
            })?;
            Ok(answer.granted)
        };
        let late = |_| PeerError::Call(crate::peer::CallError::Timeout);
        timeout(PROBE_LIMIT, asked).await.map_err(late)?
    }

    /// Holds a connection to the leader, as long as the member runs, and tells when it breaks and nobody takes a new one, and
    /// when nothing that is asked is answered.
    pub async fn watch_leader(self) {
        let mut leadership = self.view.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            self.pulse.judge(Verdict::Unknown);
            let watched = async {
                match now.leader {
                    Some(leader) if leader != self.peers.me.node => self.watch(leader).await,
                    _ => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                () = watched => leadership.changed().await,
                changed = leadership.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Returns when the leader has crashed.
    async fn watch(&self, leader: NodeId) {
        let mut answered = Instant::now();
        loop {
            let Some(address) = self.view.address(leader) else {
                sleep(WATCH_PAUSE).await;
                continue;
            };
            match self.watch_once(&address, &mut answered).await {
                Err(DialError::Refused(_)) => {
                    tracing::info!("Controller {leader}, which leads, has gone");
                    return self.pulse.judge(Verdict::Crashed(raft_id(leader)));
                }
                Err(error) => {
                    tracing::debug!(%error, "the leader is not reached");
                    // What keeps this node from dialling at all says nothing about the leader.
                    let is_silent = matches!(error, DialError::Timeout(_));
                    self.judge_silence(leader, is_silent.then_some(answered));
                    sleep(WATCH_PAUSE).await;
                }
                Ok(Watched::Broken) => self.pulse.judge(Verdict::Checking),
                // A new connection finds sooner that the leader is back.
                Ok(Watched::Silent) => self.judge_silence(leader, Some(answered)),
            }
        }
    }

    /// Returns when a connection to the leader has broken or gives no answer, or could not be made. Nobody else uses it: a
    /// question must not wait for the answers to others.
    async fn watch_once(&self, address: &Address, answered: &mut Instant) -> Result<Watched, DialError> {
        let connection = self.peers.dial(address, DIAL_LIMIT).await?;
        *answered = Instant::now();
        self.pulse.judge(Verdict::Unknown);
        let mut questions = tokio::time::interval(self.timing.election_timeout_min / 2);
        questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = connection.closed() => return Ok(Watched::Broken),
                _ = questions.tick() => {}
            }
            match connection.ask_anything(self.timing.election_timeout_max).await {
                Ok(()) => {
                    *answered = Instant::now();
                    self.pulse.judge(Verdict::Unknown);
                }
                Err(CallError::Timeout) => return Ok(Watched::Silent),
                Err(_) => return Ok(Watched::Broken),
            }
        }
    }

    /// `answered`: when the leader did last, if it could be asked since.
    fn judge_silence(&self, leader: NodeId, answered: Option<Instant>) {
        let is_deaf = answered.is_some_and(|at| at.elapsed() >= self.timing.election_timeout_max);
        self.pulse.judge(if is_deaf { Verdict::Deaf(raft_id(leader)) } else { Verdict::Unknown });
    }
}

/// How a connection to the leader ended.
enum Watched {
    Broken,
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Leads,
    Votes,
    /// A learner, or not a member yet.
    Watches,
}

struct Part {
    role: Role,
    has_others: bool,
    has_ended: bool,
}

fn part(metrics: &Metrics) -> Part {
    let membership = metrics.membership_config.membership();
    let is_voter = membership.voter_ids().any(|id| id == metrics.id);
    let role = match metrics.state {
        ServerState::Leader => Role::Leads,
        _ if is_voter => Role::Votes,
        _ => Role::Watches,
    };
    let has_others = membership.nodes().any(|(id, _)| *id != metrics.id);
    Part { role, has_others, has_ended: metrics.running_state.is_err() }
}

fn random(most_ms: u64) -> Duration {
    Duration::from_millis(rand::random_range(0..=most_ms))
}
