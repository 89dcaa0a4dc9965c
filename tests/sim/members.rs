//! The members of a group, of either protocol, static ones among them: they join, share a topic's partitions, commit offsets for
//! what they own, leave, and vanish.
//!
//! Must not know the cluster but by what its brokers say. Invariant: a member asks one thing at a time, and owns what it was
//! given last.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::context::{Context, Event, Ms, note};
use super::invariants::Broken;
use super::invariants::owners::{Owners, Stay};
use super::network::{Ask, Asking, Body, Place, Told};
use super::plan::{GroupPlan, TopicKind};
use super::transactional::coordinator_of;
use crate::coordinator::group::classic::{HeartbeatError, Join, JoinError, JoinedMember, Leaving, Sync};
use crate::coordinator::group::command::{
    Command, CommitOffsets, CommitPartition, CommitTopic, FetchOffsets, FetchTopic, Identity,
};
use crate::coordinator::group::consumer::{Heartbeat, JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH};
use crate::coordinator::group::reply::FetchedOffset;
use crate::coordinator::group::{Name, Reply};
use crate::metadata::Image;
use crate::types::{LeaderEpoch, Offset, PartitionIndex, TopicId, Uuid};

/// Calls of members come from clients with numbers from here on.
pub const MEMBERS: usize = 2_000;
/// The group, and how long its members may be silent and may take to join.
pub const CREW: &str = "crew";
pub const SESSION_MS: i32 = 700;
const REBALANCE_MS: i32 = 900;
/// A member gives an attempt up after this.
const LIMIT_MS: Ms = 600;
const JOIN_LIMIT_MS: Ms = 1_600;
const HEARTBEAT_MS: Ms = 120;
const HOST_BYTES: usize = 800;

#[derive(Clone, Debug)]
enum Step {
    Out,
    /// Of the classic protocol: joins, and then learns what it has.
    Joining,
    Syncing {
        assignments: Vec<(Name, Bytes)>,
    },
    In,
}

/// What was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Join,
    Sync,
    Heartbeat,
    Leave,
    /// With the least offset that is to be found.
    Find(PartitionIndex, Offset),
    Commit(PartitionIndex, Offset),
}

#[derive(Debug)]
pub struct Member {
    index: usize,
    is_classic: bool,
    /// Of a static member.
    instance_id: Option<Name>,
    by_regex: bool,
    /// Empty until it has one.
    id: Name,
    generation: i32,
    step: Step,
    /// What it owns, and the offset that it has committed or found for it.
    owned: BTreeMap<PartitionIndex, Option<Offset>>,
    call: Option<(u64, Ms, Asked)>,
    heartbeat_at: Ms,
    not_before: Ms,
    /// The last heartbeat was not answered, so that the next one says everything.
    says_all: bool,
    /// Offsets that it was told are committed.
    pub commits: u64,
}

impl Member {
    pub fn new(index: usize, plan: GroupPlan) -> Member {
        Member {
            index,
            is_classic: plan.is_classic,
            instance_id: (index < plan.static_members).then(|| format!("seat-{index}").into()),
            // The last ones, so that there are static members of both kinds.
            by_regex: index + plan.by_regex >= plan.members,
            id: "".into(),
            generation: -1,
            step: Step::Out,
            owned: BTreeMap::new(),
            call: None,
            heartbeat_at: 0,
            not_before: 0,
            says_all: true,
            commits: 0,
        }
    }

    pub fn awaits(&self, call: u64) -> bool {
        self.call.is_some_and(|(of, ..)| of == call)
    }

    /// Goes on, or tries again. `image` is what some broker knows of the cluster.
    pub fn act(&mut self, context: &mut Context, owners: &Owners, image: Option<&Image>) {
        let pause = context.chance.between(20, 60);
        context.after(pause, Event::Member(self.index));
        let Some(image) = image.filter(|_| !context.rests) else { return };
        if let Some((_, at, asked)) = self.call {
            let limit = if matches!(asked, Asked::Join | Asked::Sync) { JOIN_LIMIT_MS } else { LIMIT_MS };
            if context.now - at < limit {
                return;
            }
            (self.call, self.says_all) = (None, true);
        }
        if context.now < self.not_before {
            return;
        }
        let Some((asked, command)) = self.command(context, owners, image) else { return };
        let Some(leader) = coordinator_of(image, CREW) else { return };
        let call = context.unique();
        self.call = Some((call, context.now, asked));
        note!(context, "member {} {} asks {leader} as {call}: {asked:?}", self.index, self.id);
        let asking = Asking::Group { group: CREW.into(), command };
        let ask = Ask { client: MEMBERS + self.index, call, asking };
        context.send(Place::Clients, Place::Node(leader.0), Body::Ask(Box::new(ask)));
    }

    fn command(&mut self, context: &mut Context, owners: &Owners, image: &Image) -> Option<(Asked, Command)> {
        let topic = context.plan.topics.iter().find(|topic| topic.kind == TopicKind::Transactional)?.name;
        let topic_id = image.topics.by_name(topic)?.id;
        match self.step.clone() {
            Step::Out | Step::Joining => {
                self.step = Step::Joining;
                let fresh = Uuid::from_u128(0x3e3b_0000 + u128::from(context.unique()));
                if self.is_classic {
                    return Some((Asked::Join, self.join(topic, fresh)));
                }
                if self.id.is_empty() {
                    self.id = format!("member-{}-{}", self.index, context.unique()).into();
                }
                self.generation = JOIN_EPOCH;
                Some((Asked::Heartbeat, self.heartbeat(topic, topic_id)))
            }
            Step::Syncing { assignments } => Some((Asked::Sync, self.sync(assignments))),
            Step::In if context.now >= self.heartbeat_at => {
                self.heartbeat_at = context.now + HEARTBEAT_MS;
                if !context.calm && context.chance.permille(15) {
                    return self.leave(context, topic, topic_id);
                }
                Some((Asked::Heartbeat, self.heartbeat(topic, topic_id)))
            }
            Step::In if context.chance.permille(600) => None,
            Step::In => {
                let owned: Vec<(PartitionIndex, Option<Offset>)> =
                    self.owned.iter().map(|(index, at)| (*index, *at)).collect();
                let (index, at) = *owned.get(context.chance.below(owned.len().max(1)))?;
                Some(match at {
                    None => (Asked::Find(index, owners.floor(index)), self.find(topic, topic_id, index)),
                    Some(at) => {
                        let next = at.plus(context.chance.between(1, 5));
                        (Asked::Commit(index, next), self.commit(topic, topic_id, index, next))
                    }
                })
            }
        }
    }

    fn identity(&self) -> Identity {
        let instance_id = self.instance_id.clone();
        Identity { member_id: self.id.clone(), instance_id, generation: Some(self.generation) }
    }

    /// What stays the same when a static member starts anew and takes over from itself under another id.
    fn seat(&self) -> Name {
        self.instance_id.clone().unwrap_or_else(|| self.id.clone())
    }

    /// Long enough with one of them that the group's batches are not copied where they are read from memory.
    fn host(&self) -> Name {
        if self.index == 0 { "h".repeat(HOST_BYTES).into() } else { "".into() }
    }

    fn join(&self, topic: &str, fresh: Uuid) -> Command {
        let mut subscription = BytesMut::new();
        subscription.put_i16(0);
        subscription.put_i32(1);
        subscription.put_i16(topic.len() as i16);
        subscription.put_slice(topic.as_bytes());
        subscription.put_i32(-1);
        let join = Join {
            member_id: self.id.clone(),
            instance_id: self.instance_id.clone(),
            client_id: format!("member-{}", self.index).into(),
            client_host: self.host(),
            session_timeout_ms: SESSION_MS,
            rebalance_timeout_ms: REBALANCE_MS,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), subscription.freeze())],
            requires_known_id: true,
            can_skip_assignment: false,
            fresh,
        };
        Command::Join { group: CREW.into(), join: Box::new(join) }
    }

    fn sync(&self, assignments: Vec<(Name, Bytes)>) -> Command {
        let sync = Sync {
            member_id: self.id.clone(),
            instance_id: self.instance_id.clone(),
            generation: self.generation,
            protocol_type: None,
            protocol: None,
            assignments,
        };
        Command::Sync { group: CREW.into(), sync }
    }

    fn heartbeat(&self, topic: &str, topic_id: TopicId) -> Command {
        if self.is_classic {
            return Command::Heartbeat { group: CREW.into(), member: self.identity() };
        }
        let says_all = self.says_all || self.generation == JOIN_EPOCH;
        let owned: Vec<PartitionIndex> = self.owned.keys().copied().collect();
        let owned = if owned.is_empty() { Vec::new() } else { vec![(topic_id, owned)] };
        let heartbeat = Heartbeat {
            member_id: self.id.clone(),
            member_epoch: self.generation,
            instance_id: self.instance_id.clone(),
            rack: None,
            rebalance_timeout_ms: says_all.then_some(REBALANCE_MS),
            topics: says_all.then(|| if self.by_regex { Vec::new() } else { vec![topic.into()] }),
            regex: (says_all && self.by_regex).then(|| format!("{}.*", &topic[..topic.len() / 2]).into()),
            assignor: None,
            owned: Some(owned),
            client_id: format!("member-{}", self.index).into(),
            client_host: self.host(),
            fresh: Uuid::nil(),
        };
        Command::ConsumerHeartbeat { group: CREW.into(), heartbeat: Box::new(heartbeat) }
    }

    /// Leaves, or is gone without a word.
    fn leave(&mut self, context: &mut Context, topic: &str, topic_id: TopicId) -> Option<(Asked, Command)> {
        self.not_before = context.now + context.chance.between(50, 1_500);
        if context.chance.permille(500) {
            note!(context, "member {} {} vanishes", self.index, self.id);
            self.be_out(true);
            return None;
        }
        let command = if self.is_classic {
            let instance_id = self.instance_id.clone();
            let leaving = vec![Leaving { member_id: self.id.clone(), instance_id }];
            Command::Leave { group: CREW.into(), leaving }
        } else {
            // A static one may be back in time.
            let returns = self.instance_id.is_some() && context.chance.permille(500);
            self.generation = if returns { LEAVE_STATIC_EPOCH } else { LEAVE_EPOCH };
            self.owned.clear();
            self.heartbeat(topic, topic_id)
        };
        self.be_out(false);
        Some((Asked::Leave, command))
    }

    fn find(&self, topic: &str, id: TopicId, index: PartitionIndex) -> Command {
        let member = (!self.is_classic).then(|| (self.id.clone(), self.generation));
        let topics = Some(vec![FetchTopic { name: topic.into(), id, partitions: vec![index] }]);
        Command::FetchOffsets(FetchOffsets { group: CREW.into(), member, topics, require_stable: true })
    }

    fn commit(&self, topic: &str, id: TopicId, index: PartitionIndex, offset: Offset) -> Command {
        let leader_epoch = LeaderEpoch::UNKNOWN;
        let partition = CommitPartition { index, offset, leader_epoch, metadata: "".into() };
        Command::CommitOffsets(CommitOffsets {
            group: CREW.into(),
            member: self.identity(),
            knows_epochs: true,
            retention_ms: None,
            topics: vec![CommitTopic { name: topic.into(), id, partitions: vec![partition] }],
        })
    }

    /// It owns nothing any more; and with `forgets` it is another one from now on.
    fn be_out(&mut self, forgets: bool) {
        self.owned.clear();
        (self.step, self.says_all) = (Step::Out, true);
        if forgets {
            self.id = "".into();
        }
    }

    /// An answer has come.
    pub fn answered(
        &mut self,
        context: &mut Context,
        owners: &mut Owners,
        call: u64,
        told: Told,
    ) -> Result<(), Broken> {
        let Some((_, sent, asked)) = self.call.filter(|(of, ..)| *of == call) else { return Ok(()) };
        self.call = None;
        note!(context, "member {} is told of {call}: {told:?}", self.index);
        let Told::Group(Ok(reply), term) = told else {
            self.not_before = context.now + 30;
            self.says_all = true;
            return Ok(());
        };
        let stay = Stay { member: self.index, sent, at: context.now, term, generation: self.generation };
        match (asked, reply) {
            (Asked::Join, Reply::Join(Ok(joined))) => {
                self.generation = joined.generation;
                self.id = joined.member_id;
                let assignments = if joined.leader.as_ref() == Some(&self.id) {
                    let partitions = partitions(context);
                    assign(&joined.members, partitions)
                } else {
                    Vec::new()
                };
                self.step = Step::Syncing { assignments };
                Ok(())
            }
            (Asked::Join, Reply::Join(Err(refused))) => {
                let known =
                    matches!(refused.error, JoinError::MemberIdRequired | JoinError::RebalanceInProgress);
                self.id = if known { refused.member_id } else { "".into() };
                Ok(())
            }
            (Asked::Sync, Reply::Sync(Ok(synced))) => {
                let given = decode(synced.assignment);
                self.owned = given.iter().map(|index| (*index, None)).collect();
                (self.step, self.heartbeat_at) = (Step::In, context.now + HEARTBEAT_MS);
                owners.given(stay, &self.seat(), &given)
            }
            (Asked::Sync, Reply::Sync(Err(_))) => {
                self.be_out(false);
                Ok(())
            }
            (Asked::Heartbeat, Reply::Heartbeat(Ok(()))) => owners.stays(stay, self.owned.keys()),
            (Asked::Heartbeat, Reply::Heartbeat(Err(error))) => {
                // Whoever is to join again gives up what it has.
                self.be_out(error != HeartbeatError::RebalanceInProgress);
                Ok(())
            }
            (Asked::Heartbeat, Reply::ConsumerHeartbeat(Ok(reply))) => {
                self.step = Step::In;
                self.generation = reply.member_epoch;
                self.says_all = false;
                let stay = Stay { generation: reply.member_epoch, ..stay };
                // It has had this all along, also what it is to give up now.
                owners.stays(stay, self.owned.keys())?;
                let Some(assignment) = reply.assignment else { return Ok(()) };
                let given: BTreeSet<PartitionIndex> =
                    assignment.into_iter().flat_map(|(_, partitions)| partitions).collect();
                self.owned.retain(|index, _| given.contains(index));
                for index in &given {
                    self.owned.entry(*index).or_insert(None);
                }
                owners.given(stay, &self.seat(), &given)
            }
            (Asked::Heartbeat, Reply::ConsumerHeartbeat(Err(_))) => {
                self.be_out(true);
                Ok(())
            }
            (Asked::Find(index, floor), Reply::FetchOffsets(Ok(topics))) => {
                let found = topics.first().and_then(|topic| topic.partitions.first());
                let at = match found {
                    Some((_, FetchedOffset::Offset { offset, .. })) => *offset,
                    _ => Offset::ZERO,
                };
                if let Some(known) = self.owned.get_mut(&index) {
                    *known = Some(at);
                }
                owners.found(term, index, floor, at)
            }
            (Asked::Commit(index, at), Reply::CommitOffsets(Ok(_))) => {
                self.commits += 1;
                if let Some(known) = self.owned.get_mut(&index) {
                    *known = Some(at);
                }
                owners.committed(stay, index, at)
            }
            // Somebody else has come, or the group rebalances: the next heartbeat tells.
            _ => {
                self.heartbeat_at = context.now;
                Ok(())
            }
        }
    }
}

fn partitions(context: &Context) -> i32 {
    let topic = context.plan.topics.iter().find(|topic| topic.kind == TopicKind::Transactional);
    topic.map_or(1, |topic| topic.partitions)
}

/// What a leader of the classic protocol gives to each: as many as to any other.
fn assign(members: &[JoinedMember], partitions: i32) -> Vec<(Name, Bytes)> {
    let mut bytes = vec![BytesMut::new(); members.len()];
    for index in 0..partitions {
        bytes[index as usize % members.len()].put_i32(index);
    }
    members
        .iter()
        .map(|member| member.member_id.clone())
        .zip(bytes.into_iter().map(BytesMut::freeze))
        .collect()
}

fn decode(mut assignment: Bytes) -> BTreeSet<PartitionIndex> {
    let mut given = BTreeSet::new();
    while assignment.has_remaining() {
        given.insert(PartitionIndex(assignment.get_i32()));
    }
    given
}
