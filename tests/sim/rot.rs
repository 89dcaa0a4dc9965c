//! Bits that turn over on disks: of records and their headers, of indexes, of checkpoints. Must not know how the product finds
//! out.
//!
//! Invariant: of whatever has rotted another replica in sync has a sound copy: what rots has been synced there, at most one
//! machine has rotten disks at a time, and its disks are well again when a start would have to do without the others.
//!
//! Not simulated is what nobody could tell, for Kafka's formats have no checksum there: other digits in a checkpoint, other
//! entries in the index of aborted transactions, and of a batch's header the leader epoch and by how little its offset is another.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::chance::Chance;
use super::mishaps::Mishaps;
use super::plan::TopicPlan;
use super::world::World;
use crate::metadata::topics::PartitionRegistration;
use crate::storage::log::names::LEADER_EPOCHS;
use crate::storage::sim_disk::SimDisk;
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition};
use crate::wire::batch::{Batches, HEADER_LEN, PartialTail};

/// Some of the directory's checkpoints.
const CHECKPOINTS: [&str; 3] =
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"];

/// Bytes of a batch's header of which no checksum tells, nor their place: the low ones of its base offset, and the leader epoch.
const UNVOUCHED: [Range<usize>; 2] = [5..8, 12..16];

/// A replica of which some may rot.
struct Replica {
    dir: PathBuf,
    /// From the start of its log up to here others have its records.
    start: Offset,
    upto: Offset,
}

/// A batch on disk.
struct Place {
    file: PathBuf,
    at: usize,
    len: usize,
}

/// Something rots on the disks of a node.
pub fn come(world: &mut World, node: i32) -> bool {
    if others_rot(world, node) {
        return false;
    }
    let replicas = replicas(world, node);
    let World { context, nodes, .. } = world;
    let (disk, chance) = (&nodes[(node - 1) as usize].disk, &mut context.chance);
    if replicas.is_empty() {
        return false;
    }
    let replica = chance.pick(&replicas);
    match chance.below(10) {
        0 | 1 => rot_index(disk, chance, replica),
        2 => rot_checkpoint(disk, chance, replica),
        _ => rot_records(disk, chance, replica),
    }
}

/// Whether the disks of another node are rotten.
pub fn others_rot(world: &World, node: i32) -> bool {
    world.nodes.iter().any(|other| other.me.0 != node && other.disk.is_rotten())
}

/// A process is about to look what is on the disks of a node: without the others some of it may be cut off.
pub fn before_start(world: &mut World, node: i32) {
    let disk = world.nodes[(node - 1) as usize].disk.clone();
    if disk.is_rotten() && !Mishaps::may_lack(world, node) {
        disk.restore();
    }
}

/// The replicas of this node, where others in sync have some of it on disk.
fn replicas(world: &World, node: i32) -> Vec<Replica> {
    let head = &world.quorum.log.head;
    let mut found = Vec::new();
    for topic in world.context.plan.topics.iter().filter(|topic| !topic.is_unclean) {
        let Some(image) = head.topics.by_name(topic.name) else { continue };
        for (partition, registration) in image.partitions() {
            let id = TopicIdPartition { topic_id: image.id, partition };
            found.extend(replica(world, NodeId(node), topic, id, registration));
        }
    }
    found
}

fn replica(
    world: &World,
    me: NodeId,
    topic: &TopicPlan,
    id: TopicIdPartition,
    partition: &PartitionRegistration,
) -> Option<Replica> {
    if partition.lossy_epoch != LeaderEpoch::UNKNOWN || !partition.isr.contains(&me) {
        return None;
    }
    let others = partition.isr.iter().filter(|other| **other != me && Mishaps::is_well(world, **other));
    let upto = others.map(|other| world.shown_by(*other, id).map_or(Offset::ZERO, |(_, view)| view.flushed));
    let upto = upto.min()?;
    let start = world.shown_by(me, id)?.1.log_start;
    let name = format!("{}-{}", topic.name, id.partition);
    let mut dirs = (0..world.context.plan.directories).map(|at| PathBuf::from(format!("/d{at}/{name}")));
    let disk = &world.nodes[(me.0 - 1) as usize].disk;
    let dir = dirs.find(|dir| !disk.durable_files(dir, ".log").is_empty())?;
    Some(Replica { dir, start, upto })
}

fn rot_records(disk: &SimDisk, chance: &mut Chance, replica: &Replica) -> bool {
    let mut places = Vec::new();
    for (name, bytes) in disk.durable_files(&replica.dir, ".log") {
        for batch in Batches::new(&bytes, PartialTail::Ignore).map_while(Result::ok) {
            if batch.header.base_offset >= replica.start && batch.header.next_offset() <= replica.upto {
                let (at, len) = (batch.range.start, batch.bytes.len());
                places.push(Place { file: replica.dir.join(&name), at, len });
            }
        }
    }
    if places.is_empty() {
        return false;
    }
    let Place { file, at, len } = chance.pick(&places);
    let within = if chance.permille(500) { HEADER_LEN } else { *len };
    let mut rots = false;
    for _ in 0..chance.between(1, 3) {
        let (byte, bit) = (chance.below(within), chance.below(8) as u32);
        let is_vouched_for = !UNVOUCHED.iter().any(|bytes| bytes.contains(&byte));
        rots |= is_vouched_for && disk.rot(file, at + byte, bit);
    }
    rots
}

fn rot_index(disk: &SimDisk, chance: &mut Chance, replica: &Replica) -> bool {
    let ending = *chance.pick(&[".index", ".index", ".timeindex"]);
    let files: Vec<_> = disk.durable_files(&replica.dir, ending).into_iter().collect();
    let files: Vec<_> = files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    if files.is_empty() {
        return false;
    }
    let (name, bytes) = *chance.pick(&files);
    disk.rot(&replica.dir.join(name), chance.below(bytes.len()), chance.below(8) as u32)
}

fn rot_checkpoint(disk: &SimDisk, chance: &mut Chance, replica: &Replica) -> bool {
    let parent = replica.dir.parent().unwrap_or(Path::new("/"));
    let files: Vec<PathBuf> = CHECKPOINTS.iter().map(|name| parent.join(name)).collect();
    let file =
        if chance.permille(400) { replica.dir.join(LEADER_EPOCHS) } else { chance.pick(&files).clone() };
    // The first line is there in each. With its highest bit set a byte is no text.
    disk.rot(&file, chance.below(2), 7)
}
