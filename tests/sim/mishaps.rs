//! What goes wrong, when, and how it ends. Must not know how the product deals with it.
//!
//! Invariant: whatever was acknowledged is left on the disk of some replica in sync: a disk is emptied only while others are
//! in sync, and until its broker is registered anew nobody else's process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use super::context::{Event, Ms, note};
use super::controller::Request;
use super::network::Place;
use super::plan::{Mishap, TopicKind};
use super::quorum::Going;
use super::rot;
use super::world::World;
use crate::controller::raft_types::Batch;
use crate::metadata::Record;
use crate::metadata::reassign::Reassignment;
use crate::storage::sim_disk::FaultOn;
use crate::types::{BrokerEpoch, NodeId, Offset, TopicIdPartition, TopicPartition};

/// How a mishap ends.
#[derive(Debug)]
enum Mend {
    Cut(Place, Place),
    Disk(i32),
    Slow(i32),
    /// A node with a failed directory starts anew.
    Restart(i32),
    /// A node that is down gets new disks, as soon as that loses nothing.
    Wipe(i32, Ms),
    /// A node with empty disks, which gets no data from others until then, is back: whoever is alone in having them ends.
    Strike(Strike),
    /// A controller that was to be overtaken is not, or has been.
    Overtake(Overtake),
}

/// A controller is overtaken with a fence under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overtake {
    /// Whom it does not hear.
    node: i32,
    at: usize,
    term: u64,
}

#[derive(Clone, Copy, Debug)]
struct Strike {
    node: i32,
    /// The epoch that its broker had before.
    before: BrokerEpoch,
    until: Ms,
}

/// What disks are asked for beside writes and syncs.
const OTHER_CALLS: [FaultOn; 7] = [
    FaultOn::Read,
    FaultOn::SetLen,
    FaultOn::Open,
    FaultOn::Rename,
    FaultOn::Remove,
    FaultOn::Look,
    FaultOn::MakeDir,
];

/// For how long a node that is to be wiped waits until that loses nothing.
const WIPE_MS: Ms = 3_500;
const WIPE_LOOK_MS: Ms = 20;
const STRIKE_MS: Ms = 5_000;
const STRIKE_LOOK_MS: Ms = 10;
/// Within this time a controller fences whom it does not hear.
const OVERTAKE_MS: Ms = 5_500;

#[derive(Debug, Default)]
pub struct Mishaps {
    mends: BTreeMap<u64, Mend>,
    /// Nodes with empty disks, and the epoch that their brokers had before.
    wiped: BTreeMap<i32, BrokerEpoch>,
    overtake: Option<Overtake>,
}

impl Mishaps {
    /// Something goes wrong, and the next thing is planned.
    pub fn next(world: &mut World) {
        if world.context.calm {
            return;
        }
        let every = world.context.plan.mishap_every_ms;
        let pause = world.context.chance.between(every / 2, every * 3 / 2);
        world.context.after(pause, Event::Mishap);
        let mishaps = world.context.plan.mishaps.clone();
        let mishap = *world.context.chance.pick(&mishaps);
        let node = world.context.chance.between(1, world.context.plan.nodes.into()) as i32;
        note!(world.context, "mishap {mishap:?} {node}");
        let ended = Self::come(world, mishap, node);
        note!(world.context, "{}", if ended { "so it is" } else { "not now" });
    }

    fn come(world: &mut World, mishap: Mishap, node: i32) -> bool {
        let at = (node - 1) as usize;
        let for_ms = world.context.chance.between(100, 2_500);
        match mishap {
            Mishap::PowerLoss | Mishap::Kill => Self::end(world, node, mishap == Mishap::PowerLoss),
            Mishap::Blackout => {
                let nodes = world.context.plan.nodes;
                (1..=nodes).map(|node| Self::end(world, node, true)).fold(false, |any, ended| any | ended)
            }
            Mishap::Leave => match &mut world.nodes[at].process {
                Some(process) if Self::may_end(&world.mishaps, node) => {
                    process.leaves = true;
                    true
                }
                _ => false,
            },
            Mishap::Wipe => Self::take_to_wipe(world, node),
            Mishap::Pause => {
                world.nodes[at].paused_until = world.context.now + for_ms;
                true
            }
            Mishap::ClockJump => {
                world.nodes[at].wall_offset = world.context.chance.between(-3_600_000, 3_600_000);
                true
            }
            Mishap::Cut => {
                let other = world.context.chance.between(1, world.context.plan.nodes.into()) as i32;
                Self::cut(world, Place::Node(node), Place::Node(other), for_ms)
            }
            Mishap::CutOff => {
                let count = world.context.plan.controllers;
                let one = world.context.chance.below(count);
                let all = world.context.chance.permille(600);
                let mut cut_off = (0..count).filter(|at| all || *at == one);
                let from = Place::Node(node);
                cut_off.all(|at| Self::cut(world, from, Place::Controller(at), for_ms))
            }
            Mishap::FullDisk => {
                let left = world.context.chance.between(0, 1500).unsigned_abs();
                let disk = &world.nodes[at].disk;
                disk.set_capacity(Some(disk.used() + left));
                Self::mend_in(world, for_ms, Mend::Disk(node))
            }
            Mishap::SyncError => Self::fail_disk(world, node, FaultOn::Sync, for_ms),
            Mishap::WriteError => Self::fail_disk(world, node, FaultOn::Write, for_ms),
            Mishap::DiskError => {
                let on = *world.context.chance.pick(&OTHER_CALLS);
                Self::fail_disk(world, node, on, for_ms)
            }
            Mishap::Rot => rot::come(world, node),
            Mishap::SlowDisk => {
                world.context.slow.insert(node) && Self::mend_in(world, for_ms, Mend::Slow(node))
            }
            Mishap::NewController => {
                let outage = world.context.chance.between(0, 800);
                let next = world.context.chance.below(world.context.plan.controllers);
                let ends = world.context.chance.permille(400);
                let going = if ends { Going::Ends } else { Going::Unaware(for_ms) };
                world.quorum.elect(&mut world.context, next, going, outage);
                true
            }
            Mishap::PauseController => Self::pause_controller(world, for_ms),
            Mishap::Overtake => Self::deafen(world, node),
            Mishap::Unregister => Self::unregister(world, node),
            Mishap::Admin => Self::administer(world, node),
        }
    }

    /// One of the next calls of a disk fails. Whatever comes of it, the node starts anew.
    fn fail_disk(world: &mut World, node: i32, on: FaultOn, for_ms: Ms) -> bool {
        let name = *world.context.chance.pick(&["", ".log", "-checkpoint", "-0"]);
        let after = world.context.chance.below(20) as u32;
        world.nodes[(node - 1) as usize].disk.fail(on, name, after, ErrorKind::Other, Some(1));
        Self::mend_in(world, for_ms + 500, Mend::Restart(node))
    }

    /// The active controller stands still; when that takes long, another one is elected meanwhile.
    fn pause_controller(world: &mut World, for_ms: Ms) -> bool {
        let (count, old) = (world.context.plan.controllers, world.quorum.log.leader);
        world.quorum.controllers[old].paused_until = world.context.now + for_ms;
        let outage = world.context.chance.between(500, 900);
        if count > 1 && for_ms > outage {
            let next = (old + 1 + world.context.chance.below(count - 1)) % count;
            let unaware = for_ms + world.context.chance.between(0, 300);
            world.quorum.elect(&mut world.context, next, Going::Unaware(unaware), outage);
        }
        true
    }

    /// The active controller hears a broker no more, and is overtaken once it fences it.
    fn deafen(world: &mut World, node: i32) -> bool {
        if world.mishaps.overtake.is_some() {
            return false;
        }
        let overtake = Overtake { node, at: world.quorum.log.leader, term: world.quorum.log.term };
        world.mishaps.overtake = Some(overtake);
        world.context.network.cuts.insert((Place::Node(node), Place::Controller(overtake.at)));
        Self::mend_in(world, OVERTAKE_MS, Mend::Overtake(overtake))
    }

    /// A controller has done something. If it is to be overtaken, and this is the moment, another one takes over, and it hears of
    /// that later than the broker does.
    pub fn look(world: &mut World, at: usize) {
        let Some(overtake) = world.mishaps.overtake.filter(|overtake| overtake.at == at) else { return };
        let under_way = world.quorum.controllers[at].under_way();
        let fences = under_way.is_some_and(|batch| is_fence(&batch, overtake.node));
        if !fences || world.context.calm || world.quorum.log.term != overtake.term {
            return;
        }
        let count = world.context.plan.controllers;
        let next = (at + 1 + world.context.chance.below(count - 1)) % count;
        let unaware = world.context.chance.between(200, 900);
        for other in (0..count).filter(|other| *other != at) {
            let (from, to) = (Place::Controller(other), Place::Controller(at));
            world.context.network.cuts.insert((from, to));
            Self::mend_in(world, unaware, Mend::Cut(from, to));
        }
        world.quorum.elect(&mut world.context, next, Going::Unaware(unaware), 0);
        world.mishaps.overtake = None;
    }

    fn mend_in(world: &mut World, ms: Ms, mend: Mend) -> bool {
        let id = world.context.unique();
        world.mishaps.mends.insert(id, mend);
        world.context.after(ms, Event::Mend(id));
        true
    }

    fn cut(world: &mut World, one: Place, other: Place, for_ms: Ms) -> bool {
        if one == other {
            return false;
        }
        let (from, to) = if world.context.chance.permille(500) { (one, other) } else { (other, one) };
        world.context.network.cuts.insert((from, to));
        if world.context.chance.permille(500) {
            world.context.network.cuts.insert((to, from));
        }
        Self::mend_in(world, for_ms, Mend::Cut(one, other))
    }

    fn may_end(&self, node: i32) -> bool {
        self.wiped.is_empty() || self.wiped.contains_key(&node)
    }

    /// Ends the process of a node for a while.
    fn end(world: &mut World, node: i32, loses_power: bool) -> bool {
        Self::note_registered(world);
        if !world.mishaps.may_end(node) {
            return false;
        }
        world.nodes[(node - 1) as usize].kill(&mut world.context, loses_power);
        world.ended(node);
        let delay = world.context.chance.between(50, 3_000);
        world.context.after(delay, Event::Start { node });
        true
    }

    /// Forgets wiped nodes that are registered anew.
    fn note_registered(world: &mut World) {
        let head = world.quorum.log.head.clone();
        world.mishaps.wiped.retain(|node, before| {
            head.brokers.get(NodeId(*node)).is_none_or(|broker| broker.epoch == *before)
        });
    }

    /// Whether every partition that counts on this node has another replica in sync that lives.
    fn others_are_in_sync(world: &World, node: i32) -> bool {
        let (head, me) = (&world.quorum.log.head, NodeId(node));
        let lives = |id: &NodeId| *id != me && Self::is_well(world, *id);
        let mut partitions = head.topics.iter().flat_map(|topic| topic.partitions());
        partitions.all(|(_, partition)| !partition.has_replica(me) || partition.isr.iter().any(lives))
    }

    /// Whether a broker lives, with all its disks.
    pub fn is_well(world: &World, id: NodeId) -> bool {
        let process = world.nodes[(id.0 - 1) as usize].process.as_ref();
        let is_online = process.is_some_and(|process| process.directories.iter().all(|dir| dir.is_online()));
        is_online && world.quorum.log.head.brokers.is_active(id)
    }

    /// Whether a node that is down, and known to be, may come back and lack what it had. The others stay until its broker is
    /// registered anew.
    pub fn may_lack(world: &mut World, node: i32) -> bool {
        Self::note_registered(world);
        let Some(broker) = world.quorum.log.head.brokers.get(NodeId(node)) else { return false };
        let (fenced, epoch) = (broker.fenced, broker.epoch);
        let may = fenced && world.mishaps.may_end(node) && Self::others_are_in_sync(world, node);
        if may {
            world.mishaps.wiped.insert(node, epoch);
        }
        may
    }

    /// A node goes down, to come back with empty disks.
    fn take_to_wipe(world: &mut World, node: i32) -> bool {
        Self::note_registered(world);
        if !world.mishaps.wiped.is_empty() || !Self::others_are_in_sync(world, node) {
            return false;
        }
        if rot::others_rot(world, node) {
            return false;
        }
        world.nodes[(node - 1) as usize].kill(&mut world.context, true);
        world.ended(node);
        let until = world.context.now + WIPE_MS;
        Self::mend_in(world, WIPE_LOOK_MS, Mend::Wipe(node, until))
    }

    fn wipe_when_down(world: &mut World, node: i32, until: Ms) {
        let is_up = world.nodes[(node - 1) as usize].process.is_some();
        let is_over = world.context.calm || world.context.now >= until;
        if is_up || Self::wipe(world, node) || is_over {
            let delay = world.context.chance.between(20, 400);
            world.context.after(delay, Event::Start { node });
        } else {
            Self::mend_in(world, WIPE_LOOK_MS, Mend::Wipe(node, until));
        }
    }

    /// A node that is down, and known to be, comes back with empty disks.
    fn wipe(world: &mut World, node: i32) -> bool {
        Self::note_registered(world);
        let at = (node - 1) as usize;
        let ready = world.nodes[at].process.is_none() && world.mishaps.wiped.is_empty();
        if !ready || rot::others_rot(world, node) || !Self::may_lack(world, node) {
            return false;
        }
        let epoch = world.mishaps.wiped[&node];
        world.nodes[at].wipe(&mut world.context);
        if world.context.chance.permille(600) {
            for other in Self::others(world, node) {
                world.context.network.cuts.insert((Place::Node(other), Place::Node(node)));
            }
            let until = world.context.now + STRIKE_MS;
            Self::mend_in(world, STRIKE_LOOK_MS, Mend::Strike(Strike { node, before: epoch, until }));
        }
        true
    }

    fn others(world: &World, node: i32) -> Vec<i32> {
        (1..=world.context.plan.nodes).filter(|other| *other != node).collect()
    }

    fn strike(world: &mut World, strike: Strike) {
        let Strike { node, before, until } = strike;
        let head = world.quorum.log.head.clone();
        let (me, is_over) = (NodeId(node), world.context.calm || world.context.now >= until);
        let is_back =
            head.brokers.is_active(me) && head.brokers.get(me).is_some_and(|broker| broker.epoch != before);
        let mut partitions = head.topics.iter().flat_map(|topic| topic.partitions());
        let alone = partitions.find_map(|(_, partition)| match &partition.isr[..] {
            [only] if partition.has_replica(me) && *only != me && is_back => Some(*only),
            _ => None,
        });
        match alone {
            _ if is_over => {}
            None => {
                Self::mend_in(world, STRIKE_LOOK_MS, Mend::Strike(strike));
                return;
            }
            Some(only) => {
                Self::end(world, only.0, false);
            }
        }
        for other in Self::others(world, node) {
            Self::mend_in(world, 800, Mend::Cut(Place::Node(other), Place::Node(node)));
        }
    }

    fn unregister(world: &mut World, node: i32) -> bool {
        Self::note_registered(world);
        if !world.mishaps.wiped.is_empty() || !Self::others_are_in_sync(world, node) {
            return false;
        }
        world.ask(Request::Unregister(NodeId(node)));
        true
    }

    /// An administrator asks for other leaders or replicas.
    fn administer(world: &mut World, node: i32) -> bool {
        let topics = world.context.plan.topics.clone();
        let topic = world.context.chance.pick(&topics).clone();
        let index = world.context.chance.between(0, i64::from(topic.partitions) - 1) as i32;
        let partition = TopicPartition::new(topic.name, index);
        let is_plain = topic.kind == TopicKind::Plain;
        let request = match world.context.chance.below(12) {
            // What transactions have written stays: the laws look for it.
            0 | 9..=11 if !is_plain => Request::Elect(partition),
            0 => {
                world.ask(Request::Delete(topic.name.into()));
                world.create(&topic);
                return true;
            }
            1 | 2 => Request::Elect(partition),
            9..=11 => return Self::delete_records(world, &partition),
            3 => Request::Reassign(Reassignment { partition, replicas: None }),
            _ => {
                let mut replicas: BTreeSet<NodeId> = BTreeSet::from([NodeId(node)]);
                while replicas.len() < topic.replication_factor as usize {
                    let other = world.context.chance.between(1, world.context.plan.nodes.into()) as i32;
                    replicas.insert(NodeId(other));
                }
                let replicas = Some(replicas.into_iter().collect());
                Request::Reassign(Reassignment { partition, replicas })
            }
        };
        world.ask(request);
        true
    }

    /// Somebody asks the leader of a partition to delete some of its committed records.
    fn delete_records(world: &mut World, partition: &TopicPartition) -> bool {
        let head = world.quorum.log.head.clone();
        let Some(topic) = head.topics.by_name(&partition.topic) else { return false };
        let id = TopicIdPartition { topic_id: topic.id, partition: partition.partition };
        let leader = topic.partition(partition.partition).map_or(NodeId::NONE, |partition| partition.leader);
        let Some((_, view)) = world.shown_by(leader, id) else { return false };
        let upto = world.context.chance.between(view.log_start.0, view.high_watermark.0);
        let known = world.history.of(id);
        known.deleted = known.deleted.max(Offset(upto));
        note!(world.context, "records of {id:?} up to {upto} are to be deleted");
        world.nodes[(leader.0 - 1) as usize].delete_records(&mut world.context, id, Offset(upto));
        true
    }

    pub fn mend(world: &mut World, id: u64) {
        let Some(mend) = world.mishaps.mends.remove(&id) else { return };
        note!(world.context, "mended: {mend:?}");
        match mend {
            Mend::Cut(one, other) => {
                world.context.network.cuts.remove(&(one, other));
                world.context.network.cuts.remove(&(other, one));
            }
            Mend::Wipe(node, until) => Self::wipe_when_down(world, node, until),
            Mend::Strike(strike) => Self::strike(world, strike),
            Mend::Overtake(overtake) => {
                world.mishaps.overtake.take_if(|now| *now == overtake);
                let cut = (Place::Node(overtake.node), Place::Controller(overtake.at));
                world.context.network.cuts.remove(&cut);
            }
            Mend::Disk(node) => world.nodes[(node - 1) as usize].disk.set_capacity(None),
            Mend::Slow(node) => {
                world.context.slow.remove(&node);
            }
            Mend::Restart(node) => {
                world.nodes[(node - 1) as usize].disk.heal();
                let loses_power = world.context.chance.permille(500);
                if !Self::end(world, node, loses_power) {
                    Self::mend_in(world, 500, Mend::Restart(node));
                }
            }
        }
    }

    /// Nothing goes wrong any more, and what is broken is mended: a broker with a failed directory starts anew.
    pub fn end_all(world: &mut World) {
        world.context.calm = true;
        let mends: Vec<u64> = world.mishaps.mends.keys().copied().collect();
        world.mishaps.wiped.clear();
        for id in mends {
            Self::mend(world, id);
        }
        world.context.network.cuts.clear();
        for controller in &mut world.quorum.controllers {
            controller.paused_until = 0;
        }
        for at in 0..world.nodes.len() {
            let node = &mut world.nodes[at];
            node.paused_until = 0;
            node.disk.set_capacity(None);
            node.disk.heal();
            let failed = node
                .process
                .as_ref()
                .is_some_and(|process| process.directories.iter().any(|directory| !directory.is_online()));
            if failed {
                Self::end(world, at as i32 + 1, false);
            }
        }
    }
}

/// Whether the batch fences this broker.
fn is_fence(batch: &Batch, node: i32) -> bool {
    let records = batch.split().expect("whole records").into_iter();
    let mut records = records.map(|bytes| Record::decode(bytes).expect("a record").0);
    records.any(|record| match record {
        Record::BrokerRegistrationChange(change) => change.broker_id == node && change.fenced == 1,
        _ => false,
    })
}
