//! A disk in memory that forgets like a real one: what was not synced may be lost by `crash`, in part or whole, and errors
//! come when they were asked for. For tests and simulation; deterministic, all chance comes from the seed of `crash`.
//!
//! The model: a file's content and a directory's names each have a durable state and a list of changes since. A sync makes
//! the changes durable. A crash keeps, for each file and directory on its own, some first part of its changes; the last
//! write that is kept may be torn, and the file may then be as long as if it was not, with zeros where the bytes should be.
//! On request a sync of a file that fails has the same effect as on Linux: what it was to write is shown until the crash, and
//! never written, whatever syncs follow.

mod rot;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Component, Path};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::disk::{DirEntry, Disk, DiskFile, DiskLock, FileStat, OpenMode, Space};
use super::locked;
use crate::types::TimestampMs;
use rot::Rotten;

/// What an injected error hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultOn {
    Read,
    Write,
    /// Of a file or a directory.
    Sync,
    SetLen,
    Open,
    /// Not of one that is only read.
    OpenToWrite,
    Rename,
    Remove,
    /// Looking at names, sizes and free space.
    Look,
    MakeDir,
}

/// How much was asked of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub opens: u64,
    pub lists: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub syncs: u64,
}

/// A file system in memory. Clones share it.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    healed: Arc<Condvar>,
}

struct State {
    nodes: HashMap<NodeId, Node>,
    next_id: u64,
    /// Grows with each crash; files opened before it are dead.
    crashes: u64,
    capacity: Option<u64>,
    locks: HashSet<NodeId>,
    faults: Vec<Fault>,
    /// What a failed sync was to write is lost.
    loses_failed_syncs: bool,
    /// That has happened since the last crash.
    has_lost: bool,
    /// Calls of this kind on files whose names contain this do not return.
    hung: Option<(FaultOn, String)>,
    /// Whoever calls is no part of what is tested.
    spares: bool,
    rotten: Vec<Rotten>,
    counts: Counts,
    now: TimestampMs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct NodeId(u64);

const ROOT: NodeId = NodeId(0);

struct Fault {
    on: FaultOn,
    /// Hits only files whose names contain this.
    name: String,
    /// Spared calls before the first hit.
    after: u32,
    error: io::ErrorKind,
    /// Calls to hit; `None` is all.
    times: Option<u32>,
}

enum Node {
    File { name: String, content: Content, modified: TimestampMs },
    Dir { name: String, names: Names },
}

impl Node {
    fn durable_names(&self) -> Option<&BTreeMap<String, NodeId>> {
        match self {
            Node::Dir { names, .. } => Some(&names.durable),
            Node::File { .. } => None,
        }
    }
}

#[derive(Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Default)]
struct Names {
    live: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    unsynced: Vec<NameChange>,
}

#[derive(Clone)]
enum NameChange {
    Link(String, NodeId),
    Unlink(String),
    Rename(String, String, NodeId),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::SetLen(len) => content.resize(*len, 0),
            Change::Write { at, bytes } => {
                if content.len() < at + bytes.len() {
                    content.resize(at + bytes.len(), 0);
                }
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Keeps `keep` bytes of a write; `zeros` says whether the file still grows by all of it.
    fn torn(&self, keep: usize, zeros: bool) -> Change {
        match self {
            Change::SetLen(len) => Change::SetLen(*len),
            Change::Write { at, bytes } => {
                let mut bytes = bytes.clone();
                if zeros {
                    bytes[keep..].fill(0);
                } else {
                    bytes.truncate(keep);
                }
                Change::Write { at: *at, bytes }
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Change::SetLen(_) => 0,
            Change::Write { bytes, .. } => bytes.len(),
        }
    }
}

impl Content {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    fn crash(&mut self, chance: &mut Chance) {
        let keep = chance.below(self.unsynced.len() + 1);
        for change in &self.unsynced[..keep] {
            change.apply(&mut self.durable);
        }
        if let Some(next) = self.unsynced.get(keep) {
            next.torn(chance.below(next.len() + 1), chance.below(2) == 0).apply(&mut self.durable);
        }
        self.unsynced.clear();
        self.live = self.durable.clone();
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, NodeId>) {
        match self {
            NameChange::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to, id) => {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
        }
    }
}

impl Names {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn crash(&mut self, chance: &mut Chance) {
        let keep = chance.below(self.unsynced.len() + 1);
        for change in &self.unsynced[..keep] {
            change.apply(&mut self.durable);
        }
        self.unsynced.clear();
        self.live = self.durable.clone();
    }
}

/// A small deterministic generator (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        (value % bound as u64) as usize
    }
}

impl Default for State {
    fn default() -> State {
        let root = Node::Dir { name: String::new(), names: Names::default() };
        State {
            nodes: HashMap::from([(ROOT, root)]),
            next_id: 1,
            crashes: 0,
            capacity: None,
            locks: HashSet::new(),
            faults: Vec::new(),
            loses_failed_syncs: false,
            has_lost: false,
            hung: None,
            spares: false,
            rotten: Vec::new(),
            counts: Counts::default(),
            now: TimestampMs(0),
        }
    }
}

impl SimDisk {
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Loses power. What was not synced is lost, or survives in part as `seed` decides; open files and locks are void.
    pub fn crash(&self, seed: u64) {
        let mut state = locked(&self.state);
        // In order of creation, so that a seed always does the same.
        let mut ids: Vec<NodeId> = state.nodes.keys().copied().collect();
        ids.sort_unstable();
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for id in ids {
            match state.nodes.get_mut(&id) {
                Some(Node::File { content, .. }) => content.crash(&mut chance),
                Some(Node::Dir { names, .. }) => names.crash(&mut chance),
                None => {}
            }
        }
        state.crashes += 1;
        state.locks.clear();
        state.faults.clear();
        state.has_lost = false;
    }

    /// Voids open files and locks, as the death of a process does; nothing is lost.
    pub fn kill(&self) {
        let mut state = locked(&self.state);
        state.crashes += 1;
        state.locks.clear();
    }

    /// Limits the bytes of all files; writes beyond fail with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        locked(&self.state).capacity = bytes;
    }

    /// Makes calls fail: after `after` spared ones, `times` calls (all, when `None`) on files whose names contain `name`.
    pub fn fail(&self, on: FaultOn, name: &str, after: u32, error: io::ErrorKind, times: Option<u32>) {
        locked(&self.state).faults.push(Fault { on, name: name.to_owned(), after, error, times });
    }

    /// Lets calls on files whose names contain `name` wait until the disk is healed.
    pub fn hang(&self, on: FaultOn, name: &str) {
        locked(&self.state).hung = Some((on, name.to_owned()));
    }

    /// Ends all injected errors, and lets calls that wait go on.
    pub fn heal(&self) {
        let mut state = locked(&self.state);
        state.faults.clear();
        state.hung = None;
        self.healed.notify_all();
    }

    /// From now on what a failed sync was to write is lost.
    pub fn lose_failed_syncs(&self) {
        locked(&self.state).loses_failed_syncs = true;
    }

    /// Whether the disk shows what a crash would take, although nothing is left to sync.
    pub fn has_lost(&self) -> bool {
        locked(&self.state).has_lost
    }

    /// What would be left of a file from `at` on after a crash that keeps nothing unsynced, if nothing had rotted.
    pub fn durable(&self, path: &Path, at: usize) -> Option<Vec<u8>> {
        let (dir, name) = (path.parent()?, path.file_name()?.to_str()?);
        let state = locked(&self.state);
        let id = *state.durable_names(dir)?.get(name)?;
        match state.nodes.get(&id) {
            Some(Node::File { content, .. }) => Some(state.written(id, content, at)),
            _ => None,
        }
    }

    /// What would be left of the files in a directory whose names end so after a crash that keeps nothing unsynced, if nothing had
    /// rotted.
    pub fn durable_files(&self, dir: &Path, ending: &str) -> BTreeMap<String, Vec<u8>> {
        let state = locked(&self.state);
        let Some(names) = state.durable_names(dir) else { return BTreeMap::new() };
        let named = names.iter().filter(|(name, _)| name.ends_with(ending));
        let files = named.filter_map(|(name, id)| match state.nodes.get(id) {
            Some(Node::File { content, .. }) => Some((name.clone(), state.written(*id, content, 0))),
            _ => None,
        });
        files.collect()
    }

    /// Their names alone.
    pub fn durable_names(&self, dir: &Path, ending: &str) -> Vec<String> {
        let state = locked(&self.state);
        let names = state.durable_names(dir).into_iter().flat_map(BTreeMap::keys);
        names.filter(|name| name.ends_with(ending)).cloned().collect()
    }

    /// Has no call fail or count until it is told otherwise, for somebody looks who is no part of what is tested.
    pub fn spare(&self, spares: bool) {
        locked(&self.state).spares = spares;
    }

    pub fn counts(&self) -> Counts {
        locked(&self.state).counts
    }

    /// The time that changed files get.
    pub fn set_now(&self, now: TimestampMs) {
        locked(&self.state).now = now;
    }

    /// The bytes of all files that have a name.
    pub fn used(&self) -> u64 {
        locked(&self.state).used()
    }
}

impl State {
    fn used(&self) -> u64 {
        let (mut used, mut left) = (0, vec![ROOT]);
        while let Some(node) = left.pop().and_then(|id| self.nodes.get(&id)) {
            match node {
                Node::File { content, .. } => used += content.live.len() as u64,
                Node::Dir { names, .. } => left.extend(names.live.values()),
            }
        }
        used
    }

    /// What would be left of the names in a directory.
    fn durable_names(&self, dir: &Path) -> Option<&BTreeMap<String, NodeId>> {
        let mut at = ROOT;
        for name in components(dir) {
            at = *self.nodes.get(&at)?.durable_names()?.get(&name)?;
        }
        self.nodes.get(&at)?.durable_names()
    }

    fn inject(&mut self, on: FaultOn, name: &str) -> io::Result<()> {
        if self.spares {
            return Ok(());
        }
        for fault in &mut self.faults {
            if fault.on != on || !name.contains(&fault.name) || fault.times == Some(0) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times = fault.times.map(|times| times - 1);
            return Err(io::Error::new(fault.error, "injected"));
        }
        Ok(())
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.next_id);
        self.next_id += 1;
        self.nodes.insert(id, node);
        id
    }

    fn names(&mut self, id: NodeId) -> io::Result<&mut Names> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir { names, .. }) => Ok(names),
            Some(Node::File { .. }) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn resolve(&mut self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for name in components(path) {
            at = *self.names(at)?.live.get(&name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    /// The directory that holds `path`, and the name in it.
    fn parent(&mut self, path: &Path) -> io::Result<(NodeId, String)> {
        let mut names = components(path);
        let name = names.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = ROOT;
        for name in names {
            at = *self.names(at)?.live.get(&name).ok_or(io::ErrorKind::NotFound)?;
        }
        self.names(at)?;
        Ok((at, name))
    }
}

fn components(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect()
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = locked(&self.state);
        let (parent, name) = state.parent(path)?;
        state.inject(FaultOn::Open, &name)?;
        if mode != OpenMode::Read {
            state.inject(FaultOn::OpenToWrite, &name)?;
        }
        state.counts.opens += 1;
        let existing = state.names(parent)?.live.get(&name).copied();
        let id = match (existing, mode) {
            (Some(id), _) => id,
            (None, OpenMode::Read | OpenMode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, _) => {
                let modified = state.now;
                let node = Node::File { name: name.clone(), content: Content::default(), modified };
                let id = state.add(node);
                state.names(parent)?.change(NameChange::Link(name, id));
                id
            }
        };
        match state.nodes.get_mut(&id) {
            Some(Node::File { content, .. }) => {
                if mode == OpenMode::Truncate && !content.live.is_empty() {
                    content.change(Change::SetLen(0));
                }
            }
            _ => return Err(io::ErrorKind::IsADirectory.into()),
        }
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { disk: self.clone(), id, crashes: state.crashes, writable }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        let mut state = locked(&self.state);
        let id = state.resolve(path)?;
        state.inject(FaultOn::Look, &components(path).pop().unwrap_or_default())?;
        Ok(match state.nodes.get(&id) {
            Some(Node::File { content, modified, .. }) => {
                FileStat { is_dir: false, len: content.live.len() as u64, modified: *modified }
            }
            _ => FileStat { is_dir: true, len: 0, modified: TimestampMs(0) },
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = locked(&self.state);
        state.counts.lists += 1;
        let id = state.resolve(dir)?;
        state.inject(FaultOn::Look, &components(dir).pop().unwrap_or_default())?;
        let live = state.names(id)?.live.clone();
        let is_dir = |id: &NodeId| matches!(state.nodes.get(id), Some(Node::Dir { .. }));
        Ok(live.into_iter().map(|(name, id)| DirEntry { name, is_dir: is_dir(&id) }).collect())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let mut at = ROOT;
        for name in components(dir) {
            at = match state.names(at)?.live.get(&name) {
                Some(&id) => id,
                None => {
                    state.inject(FaultOn::MakeDir, &name)?;
                    let id = state.add(Node::Dir { name: name.clone(), names: Names::default() });
                    state.names(at)?.change(NameChange::Link(name, id));
                    id
                }
            };
        }
        state.names(at).map(|_| ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let (from_dir, from_name) = state.parent(from)?;
        let (to_dir, to_name) = state.parent(to)?;
        let id = *state.names(from_dir)?.live.get(&from_name).ok_or(io::ErrorKind::NotFound)?;
        state.inject(FaultOn::Rename, &from_name)?;
        let there = state.names(to_dir)?.live.get(&to_name).copied();
        if let Some(Node::Dir { names, .. }) =
            there.filter(|there| *there != id).and_then(|there| state.nodes.get(&there))
            && !names.live.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if from_dir == to_dir {
            state.names(from_dir)?.change(NameChange::Rename(from_name, to_name.clone(), id));
        } else {
            state.names(to_dir)?.change(NameChange::Link(to_name.clone(), id));
            state.names(from_dir)?.change(NameChange::Unlink(from_name));
        }
        if let Some(Node::File { name, .. } | Node::Dir { name, .. }) = state.nodes.get_mut(&id) {
            *name = to_name;
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let (dir, name) = state.parent(path)?;
        let id = *state.names(dir)?.live.get(&name).ok_or(io::ErrorKind::NotFound)?;
        if matches!(state.nodes.get(&id), Some(Node::Dir { .. })) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        state.inject(FaultOn::Remove, &name)?;
        state.names(dir)?.change(NameChange::Unlink(name));
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let (parent, name) = state.parent(dir)?;
        let id = *state.names(parent)?.live.get(&name).ok_or(io::ErrorKind::NotFound)?;
        state.names(id)?;
        state.inject(FaultOn::Remove, &name)?;
        state.names(parent)?.change(NameChange::Unlink(name));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = locked(&self.state);
        let id = state.resolve(dir)?;
        let name = components(dir).pop().unwrap_or_default();
        state.inject(FaultOn::Sync, &name)?;
        state.counts.syncs += 1;
        let names = state.names(id)?;
        names.durable = names.live.clone();
        names.unsynced.clear();
        Ok(())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let mut state = locked(&self.state);
        state.inject(FaultOn::Look, &components(path).pop().unwrap_or_default())?;
        let total = state.capacity.unwrap_or(u64::MAX);
        Ok(Space { total, free: total.saturating_sub(state.used()) })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.open(path, OpenMode::Create)?;
        let mut state = locked(&self.state);
        let id = state.resolve(path)?;
        if !state.locks.insert(id) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { disk: self.clone(), id, crashes: state.crashes })))
    }
}

/// An open file.
struct SimFile {
    disk: SimDisk,
    id: NodeId,
    crashes: u64,
    writable: bool,
}

impl SimFile {
    /// Runs `act` on the file's content, after counting and injected errors.
    fn with<T>(
        &self,
        on: Option<FaultOn>,
        act: impl FnOnce(&mut Content, &mut Counts) -> T,
    ) -> io::Result<T> {
        let mut state = locked(&self.disk.state);
        if state.crashes != self.crashes {
            return Err(io::Error::other("the file was opened before the crash"));
        }
        let may_fail = state.hung.is_some() || !state.faults.is_empty();
        if let Some(on) = on.filter(|_| may_fail) {
            let name = match state.nodes.get(&self.id) {
                Some(Node::File { name, .. }) => name.clone(),
                _ => return Err(io::ErrorKind::NotFound.into()),
            };
            let hangs = |state: &mut State| {
                state.hung.as_ref().is_some_and(|(kind, part)| *kind == on && name.contains(part))
            };
            let waited = self.disk.healed.wait_while(state, hangs);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.inject(on, &name)?;
        }
        if matches!(on, Some(FaultOn::Write | FaultOn::SetLen)) && !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let State { nodes, counts, now, .. } = &mut *state;
        let Some(Node::File { content, modified, .. }) = nodes.get_mut(&self.id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if matches!(on, Some(FaultOn::Write | FaultOn::SetLen)) {
            *modified = *now;
        }
        Ok(act(content, counts))
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.with(Some(FaultOn::Look), |content, _| content.live.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes, buf.len(), offset)?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn read_into(&self, into: &mut Vec<u8>, len: usize, offset: u64) -> io::Result<()> {
        self.with(Some(FaultOn::Read), |content, counts| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.live.len());
            let end = start.saturating_add(len).min(content.live.len());
            into.extend_from_slice(&content.live[start..end]);
            counts.reads += 1;
            counts.read_bytes += (end - start) as u64;
        })
    }

    fn write_all_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let at = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let room = {
            let state = locked(&self.disk.state);
            state.capacity.map(|capacity| capacity.saturating_sub(state.used()))
        };
        self.with(Some(FaultOn::Write), |content, counts| {
            let grows = (at + bytes.len()).saturating_sub(content.live.len());
            let lacking =
                room.map_or(0, |room| grows.saturating_sub(usize::try_from(room).unwrap_or(usize::MAX)));
            bytes.truncate(bytes.len().saturating_sub(lacking));
            counts.writes += 1;
            counts.written_bytes += bytes.len() as u64;
            if !bytes.is_empty() {
                content.change(Change::Write { at, bytes });
            }
            // As on a real disk, what fitted was written.
            if lacking > 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })?
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.with(Some(FaultOn::SetLen), |content, _| content.change(Change::SetLen(len)))
    }

    fn set_modified(&self, at: TimestampMs) -> io::Result<()> {
        self.with(Some(FaultOn::Write), |_, _| ())?;
        if let Some(Node::File { modified, .. }) = locked(&self.disk.state).nodes.get_mut(&self.id) {
            *modified = at;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.with(Some(FaultOn::Sync), |content, counts| {
            content.sync();
            counts.syncs += 1;
        });
        let mut state = locked(&self.disk.state);
        if synced.is_err() && state.loses_failed_syncs && state.crashes == self.crashes {
            state.has_lost = true;
            if let Some(Node::File { content, .. }) = state.nodes.get_mut(&self.id) {
                content.unsynced.clear();
            }
        }
        synced
    }
}

struct SimLock {
    disk: SimDisk,
    id: NodeId,
    crashes: u64,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = locked(&self.disk.state);
        if state.crashes == self.crashes {
            state.locks.remove(&self.id);
        }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock").field("id", &self.id).finish_non_exhaustive()
    }
}
