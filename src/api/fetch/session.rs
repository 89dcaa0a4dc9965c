//! Fetch sessions (KIP-227): the broker remembers which partitions a client fetches and what it last told about each, so
//! that a request names only what changed and an answer only what is new.
//!
//! A session by topic ids remembers under which name it has known each: when the topic has gone, or another one has its name,
//! the client is told so, and not that nobody knows the id.
//!
//! Pure but for its lock: no clock, no randomness. Invariant: at most `slots` sessions, and a session's epoch says which
//! request is next, so that a request that was lost or repeated is noticed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicId};

/// No session: ids of sessions are positive.
pub const NO_SESSION: i32 = 0;
/// The epoch that asks for a new session.
const INITIAL_EPOCH: i32 = 0;
/// The epoch that closes the session, or asks for none.
const FINAL_EPOCH: i32 = -1;

/// A topic as the request names it: by name up to version 12, by id from 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    Name(Arc<str>),
    Id(TopicId),
}

/// A partition of a session.
pub type Key = (TopicKey, PartitionIndex);

/// What a client wants of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub current_leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub last_fetched_epoch: LeaderEpoch,
    /// The follower's own log start; `Offset::UNKNOWN` of a consumer.
    pub log_start_offset: Offset,
    pub max_bytes: i32,
    /// What a follower has on disk, if it tells.
    pub flushed: Option<Offset>,
    /// This request names the partition; a session remembers the others.
    pub is_news: bool,
}

/// The session part of a request.
#[derive(Debug)]
pub struct SessionRequest {
    pub session_id: i32,
    pub epoch: i32,
    pub uses_topic_ids: bool,
    /// A follower's session may push out a consumer's, never the other way round.
    pub from_follower: bool,
    pub partitions: Vec<(Key, FetchPartition)>,
    pub forgotten: Vec<Key>,
}

/// What is told about a partition, as far as it decides whether an incremental answer names it.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub error: ErrorCode,
    pub has_records: bool,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    /// A preferred replica or a diverging epoch, which must always be told.
    pub has_advice: bool,
    /// The leader waits for what its followers have synced. One that has something to sync must hear of it, also when its log
    /// is complete and nothing else is new.
    pub counts_flushed: bool,
}

/// How one request is to be answered.
#[derive(Debug)]
pub struct FetchContext {
    /// The partitions to fetch, in the order in which bytes are given out.
    pub partitions: Vec<(Key, FetchPartition)>,
    session: Option<Arc<Mutex<Session>>>,
    incremental: bool,
}

/// The sessions of a node.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    eviction_ms: i64,
    sessions: Mutex<HashMap<i32, Entry>>,
}

#[derive(Debug)]
struct Entry {
    session: Arc<Mutex<Session>>,
    from_follower: bool,
    created: TimestampMs,
    last_used: TimestampMs,
}

#[derive(Debug)]
struct Session {
    id: i32,
    /// The epoch that the next request must have.
    epoch: i32,
    uses_topic_ids: bool,
    /// Partitions in the order in which they are served; one that gave records goes to the end.
    order: BTreeMap<u64, Key>,
    partitions: HashMap<Key, Cached>,
    next_position: u64,
    /// How many partitions are of topics whose names nobody knew yet.
    nameless: usize,
}

#[derive(Debug)]
struct Cached {
    position: u64,
    /// The name that a topic had when its id was first known here.
    name: Option<Arc<str>>,
    wanted: FetchPartition,
    high_watermark: Offset,
    log_start_offset: Offset,
}

impl FetchSessions {
    /// `slots` is `max.incremental.fetch.session.cache.slots`; a session that was used within `eviction_ms` is not pushed
    /// out by another of its kind.
    pub fn new(slots: usize, eviction_ms: i64) -> FetchSessions {
        FetchSessions { slots, eviction_ms, sessions: Mutex::default() }
    }

    /// Merges a request into its session. `fresh_id` is tried as the id of a new session. Errors are those of KIP-227: an
    /// unknown session, an epoch that is not the next, or names where the session has ids.
    pub fn begin(
        &self,
        request: SessionRequest,
        fresh_id: i32,
        now: TimestampMs,
    ) -> Result<FetchContext, ErrorCode> {
        if request.epoch == INITIAL_EPOCH || request.epoch == FINAL_EPOCH {
            Ok(self.begin_full(request, fresh_id, now))
        } else {
            self.begin_incremental(request, now)
        }
    }

    fn begin_full(&self, request: SessionRequest, fresh_id: i32, now: TimestampMs) -> FetchContext {
        let mut sessions = lock(&self.sessions);
        if request.session_id != NO_SESSION {
            sessions.remove(&request.session_id);
        }
        let wants_session = request.epoch == INITIAL_EPOCH && !request.partitions.is_empty();
        let session = if wants_session && self.make_room(&mut sessions, &request, now) {
            let mut id = fresh_id.max(1);
            while sessions.contains_key(&id) {
                id = id.checked_add(1).unwrap_or(1);
            }
            let session = Arc::new(Mutex::new(Session::new(id, &request)));
            let entry = Entry {
                session: Arc::clone(&session),
                from_follower: request.from_follower,
                created: now,
                last_used: now,
            };
            sessions.insert(id, entry);
            Some(session)
        } else {
            None
        };
        FetchContext { partitions: request.partitions, session, incremental: false }
    }

    fn begin_incremental(
        &self,
        request: SessionRequest,
        now: TimestampMs,
    ) -> Result<FetchContext, ErrorCode> {
        let shared = {
            let mut sessions = lock(&self.sessions);
            let entry = sessions.get_mut(&request.session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
            entry.last_used = now;
            Arc::clone(&entry.session)
        };
        let mut session = lock(&shared);
        if session.epoch != request.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_topic_ids != request.uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for key in &request.forgotten {
            session.forget(key);
        }
        for (key, wanted) in request.partitions {
            session.want(key, wanted);
        }
        if session.partitions.is_empty() {
            let id = session.id;
            drop(session);
            lock(&self.sessions).remove(&id);
            return Ok(FetchContext { partitions: Vec::new(), session: None, incremental: true });
        }
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        let partitions = session.in_order();
        drop(session);
        Ok(FetchContext { partitions, session: Some(shared), incremental: true })
    }

    /// True if there is, or could be made, room for one more session: by pushing out the one that was used longest ago if
    /// that is long enough, or else, for a follower, a consumer's.
    fn make_room(
        &self,
        sessions: &mut HashMap<i32, Entry>,
        request: &SessionRequest,
        now: TimestampMs,
    ) -> bool {
        if sessions.len() < self.slots {
            return true;
        }
        let stale = |entry: &Entry| now.0 - entry.last_used.0 > self.eviction_ms;
        let victim = sessions
            .iter()
            .filter(|(_, entry)| stale(entry) || (request.from_follower && !entry.from_follower))
            .min_by_key(|(_, entry)| (!stale(entry), entry.last_used, entry.created))
            .map(|(&id, _)| id);
        victim.is_some_and(|id| sessions.remove(&id).is_some())
    }
}

impl FetchContext {
    /// Notes the names of topics that are known by now.
    pub fn learn_names(&self, name_of: impl Fn(TopicId) -> Option<Arc<str>>) {
        if let Some(session) = &self.session {
            lock(session).learn_names(name_of);
        }
    }

    /// The name by which the session has known the topic of an id, be it gone since.
    pub fn known_name(&self, key: &Key) -> Option<Arc<str>> {
        lock(self.session.as_ref()?).partitions.get(key)?.name.clone()
    }

    /// The id to put into the answer.
    pub fn session_id(&self) -> i32 {
        self.session.as_ref().map_or(NO_SESSION, |session| lock(session).id)
    }

    /// Whether each partition of an answer must be named, in the order of `told`; remembers what the client now knows.
    pub fn must_tell(&self, told: &[(&Key, Told)]) -> Vec<bool> {
        let Some(session) = &self.session else { return vec![true; told.len()] };
        let mut session = lock(session);
        told.iter()
            .map(|(key, told)| {
                let news = session.told(key, told);
                news || !self.incremental
            })
            .collect()
    }
}

impl Session {
    fn new(id: i32, request: &SessionRequest) -> Session {
        let mut session = Session {
            id,
            epoch: INITIAL_EPOCH + 1,
            uses_topic_ids: request.uses_topic_ids,
            order: BTreeMap::new(),
            partitions: HashMap::new(),
            next_position: 0,
            nameless: 0,
        };
        for (key, wanted) in &request.partitions {
            session.want(key.clone(), FetchPartition { is_news: false, ..*wanted });
        }
        session
    }

    fn want(&mut self, key: Key, wanted: FetchPartition) {
        if let Some(cached) = self.partitions.get_mut(&key) {
            cached.wanted = wanted;
            return;
        }
        let position = self.next_position;
        self.next_position += 1;
        self.order.insert(position, key.clone());
        self.nameless += usize::from(self.uses_topic_ids);
        // Nothing was told yet, so whatever comes first differs from this.
        let (high_watermark, log_start_offset) = (Offset::UNKNOWN, Offset::UNKNOWN);
        let cached = Cached { position, name: None, wanted, high_watermark, log_start_offset };
        self.partitions.insert(key, cached);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(cached) = self.partitions.remove(key) {
            self.order.remove(&cached.position);
            self.nameless -= usize::from(self.uses_topic_ids && cached.name.is_none());
        }
    }

    fn learn_names(&mut self, name_of: impl Fn(TopicId) -> Option<Arc<str>>) {
        if self.nameless == 0 {
            return;
        }
        for ((topic, _), cached) in self.partitions.iter_mut().filter(|(_, cached)| cached.name.is_none()) {
            let TopicKey::Id(id) = topic else { continue };
            cached.name = name_of(*id);
            self.nameless -= usize::from(cached.name.is_some());
        }
    }

    fn in_order(&mut self) -> Vec<(Key, FetchPartition)> {
        let partitions = &mut self.partitions;
        let in_order = self.order.values().filter_map(|key| {
            let cached = partitions.get_mut(key)?;
            let wanted = cached.wanted;
            cached.wanted.is_news = false;
            Some((key.clone(), wanted))
        });
        in_order.collect()
    }

    /// Records what the client is told; true if it is news.
    fn told(&mut self, key: &Key, told: &Told) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else { return true };
        let FetchPartition { flushed, fetch_offset, .. } = cached.wanted;
        let is_to_sync = told.counts_flushed && flushed.is_some_and(|flushed| flushed < fetch_offset);
        let mut news = told.has_records || told.has_advice || is_to_sync;
        if cached.high_watermark != told.high_watermark {
            cached.high_watermark = told.high_watermark;
            news = true;
        }
        if cached.log_start_offset != told.log_start_offset {
            cached.log_start_offset = told.log_start_offset;
            news = true;
        }
        if told.error.is_error() {
            // The next answer without an error must be told even if it says the same as the last one without.
            cached.high_watermark = Offset::UNKNOWN;
            news = true;
        }
        if told.has_records {
            self.order.remove(&cached.position);
            cached.position = self.next_position;
            self.next_position += 1;
            self.order.insert(cached.position, key.clone());
        }
        news
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: i32) -> Key {
        (TopicKey::Name("t".into()), PartitionIndex(partition))
    }

    fn wanted(offset: i64) -> FetchPartition {
        FetchPartition {
            current_leader_epoch: LeaderEpoch::UNKNOWN,
            fetch_offset: Offset(offset),
            last_fetched_epoch: LeaderEpoch::UNKNOWN,
            log_start_offset: Offset::UNKNOWN,
            max_bytes: 100,
            flushed: None,
            is_news: true,
        }
    }

    fn request(session_id: i32, epoch: i32, partitions: &[i32]) -> SessionRequest {
        SessionRequest {
            session_id,
            epoch,
            uses_topic_ids: false,
            from_follower: false,
            partitions: partitions.iter().map(|&p| (key(p), wanted(0))).collect(),
            forgotten: Vec::new(),
        }
    }

    fn told(high_watermark: i64, has_records: bool) -> Told {
        Told {
            error: ErrorCode::None,
            has_records,
            high_watermark: Offset(high_watermark),
            log_start_offset: Offset::ZERO,
            has_advice: false,
            counts_flushed: false,
        }
    }

    fn partitions(context: &FetchContext) -> Vec<i32> {
        context.partitions.iter().map(|(key, _)| key.1.0).collect()
    }

    /// A follower with all records to which nothing was said would never sync them, and never be in sync.
    #[test]
    fn a_follower_hears_again_and_again_that_it_is_to_sync_until_it_has() {
        let sessions = FetchSessions::new(10, 1000);
        let fetch = |epoch, flushed: i64| {
            let mut request = request(i32::from(epoch > 0) * 7, epoch, &[0]);
            let (fetch_offset, flushed) = (Offset(5), Some(Offset(flushed)));
            request.partitions = vec![(key(0), FetchPartition { fetch_offset, flushed, ..wanted(0) })];
            request
        };
        let waits = Told { counts_flushed: true, ..told(5, false) };
        for (epoch, flushed, told, expected) in [
            (0, 0, waits, true),
            (1, 0, waits, true),
            (2, 3, waits, true),
            (3, 3, Told { counts_flushed: false, ..waits }, false),
            (4, 5, waits, false),
        ] {
            let context = sessions.begin(fetch(epoch, flushed), 7, TimestampMs(0)).unwrap();
            assert_eq!(context.must_tell(&[(&key(0), told)]), [expected], "epoch {epoch}");
        }
    }

    #[test]
    fn an_incremental_answer_names_only_news_and_serves_the_neglected_first() {
        let sessions = FetchSessions::new(10, 1000);
        let full = sessions.begin(request(0, 0, &[0, 1, 2]), 7, TimestampMs(0)).unwrap();
        assert_eq!(full.session_id(), 7);
        let news =
            full.must_tell(&[(&key(0), told(5, true)), (&key(1), told(0, false)), (&key(2), told(0, false))]);
        assert_eq!(news, [true, true, true]);

        let next = sessions.begin(request(7, 1, &[]), 8, TimestampMs(0)).unwrap();
        assert_eq!(partitions(&next), [1, 2, 0]);
        let news = next.must_tell(&[
            (&key(1), told(0, false)),
            (&key(2), told(1, false)),
            (&key(0), told(5, false)),
        ]);
        assert_eq!(news, [false, true, false]);
    }

    #[test]
    fn a_request_tells_which_partitions_it_names() {
        let sessions = FetchSessions::new(10, 1000);
        let news = |request| {
            let context = sessions.begin(request, 7, TimestampMs(0)).unwrap();
            context.partitions.iter().map(|(_, wanted)| wanted.is_news).collect::<Vec<_>>()
        };
        assert_eq!(news(request(0, 0, &[0, 1])), [true, true]);
        assert_eq!(news(request(7, 1, &[])), [false, false]);
        assert_eq!(news(request(7, 2, &[1])), [false, true]);
        assert_eq!(news(request(7, 3, &[2])), [false, false, true]);
        assert_eq!(news(request(7, 4, &[])), [false, false, false]);
    }

    #[test]
    fn a_topic_keeps_the_name_by_which_it_was_known() {
        let sessions = FetchSessions::new(10, 1000);
        let by_id = |topic: u128| (TopicKey::Id(TopicId::from_u128(topic)), PartitionIndex(0));
        let ask = |session_id, epoch, topics: &[u128], forgotten: &[u128]| {
            let request = SessionRequest {
                uses_topic_ids: true,
                partitions: topics.iter().map(|&topic| (by_id(topic), wanted(0))).collect(),
                forgotten: forgotten.iter().map(|&topic| by_id(topic)).collect(),
                ..request(session_id, epoch, &[])
            };
            sessions.begin(request, 7, TimestampMs(0)).unwrap()
        };
        let known = |context: &FetchContext| [1, 2].map(|topic| context.known_name(&by_id(topic)).is_some());
        let only = |known: u128| move |id: TopicId| (id == TopicId::from_u128(known)).then(|| "t".into());

        let context = ask(0, 0, &[1, 2], &[]);
        context.learn_names(only(1));
        assert_eq!(known(&context), [true, false]);
        let context = ask(7, 1, &[1], &[]);
        context.learn_names(only(2));
        assert_eq!(known(&context), [true, true]);
        // Who forgets a partition and wants it again begins anew with it.
        ask(7, 2, &[], &[1]);
        let context = ask(7, 3, &[1], &[]);
        context.learn_names(only(2));
        assert_eq!(known(&context), [false, true]);
        let unbound = ask(0, -1, &[1], &[]);
        unbound.learn_names(only(1));
        assert_eq!(known(&unbound), [false, false], "without a session nothing is remembered");
    }

    #[test]
    fn an_error_is_told_and_so_is_its_end() {
        let sessions = FetchSessions::new(10, 1000);
        let full = sessions.begin(request(0, 0, &[0]), 7, TimestampMs(0)).unwrap();
        full.must_tell(&[(&key(0), told(5, false))]);
        let failed = Told { error: ErrorCode::NotLeaderOrFollower, ..told(-1, false) };
        for (epoch, tell, expected) in
            [(1, failed, true), (2, failed, true), (3, told(5, false), true), (4, told(5, false), false)]
        {
            let context = sessions.begin(request(7, epoch, &[]), 8, TimestampMs(0)).unwrap();
            assert_eq!(context.must_tell(&[(&key(0), tell)]), [expected], "epoch {epoch}");
        }
    }

    #[test]
    fn requests_out_of_turn_are_refused() {
        let sessions = FetchSessions::new(10, 1000);
        sessions.begin(request(0, 0, &[0]), 7, TimestampMs(0)).unwrap();
        let refuse = |request| sessions.begin(request, 9, TimestampMs(0)).unwrap_err();
        assert_eq!(refuse(request(8, 1, &[])), ErrorCode::FetchSessionIdNotFound);
        assert_eq!(refuse(request(7, 2, &[])), ErrorCode::InvalidFetchSessionEpoch);
        let ids = SessionRequest { uses_topic_ids: true, ..request(7, 1, &[]) };
        assert_eq!(refuse(ids), ErrorCode::FetchSessionTopicIdError);
        assert!(sessions.begin(request(7, 1, &[]), 9, TimestampMs(0)).is_ok());
        assert_eq!(refuse(request(7, 1, &[])), ErrorCode::InvalidFetchSessionEpoch);
    }

    #[test]
    fn a_session_ends_by_its_last_partition_or_the_final_epoch() {
        let sessions = FetchSessions::new(10, 1000);
        sessions.begin(request(0, 0, &[0]), 7, TimestampMs(0)).unwrap();
        let forget = SessionRequest { forgotten: vec![key(0)], ..request(7, 1, &[]) };
        assert_eq!(sessions.begin(forget, 9, TimestampMs(0)).unwrap().session_id(), NO_SESSION);
        assert!(lock(&sessions.sessions).is_empty());

        sessions.begin(request(0, 0, &[0]), 7, TimestampMs(0)).unwrap();
        let last = sessions.begin(request(7, -1, &[0]), 9, TimestampMs(0)).unwrap();
        assert_eq!((last.session_id(), partitions(&last)), (NO_SESSION, vec![0]));
        assert!(lock(&sessions.sessions).is_empty());
    }

    #[test]
    fn room_is_made_from_the_stale_and_for_followers_from_consumers() {
        let sessions = FetchSessions::new(1, 1000);
        let open = |from_follower, now| {
            let request = SessionRequest { from_follower, ..request(0, 0, &[0]) };
            sessions.begin(request, 1, TimestampMs(now)).unwrap().session_id() != NO_SESSION
        };
        assert!(open(false, 0));
        assert!(!open(false, 1000), "used within the time");
        assert!(open(false, 1001), "stale");
        assert!(open(true, 1002), "a follower goes before a consumer");
        assert!(!open(true, 1003), "but not before a follower");
        assert!(!open(false, 1003));
        assert!(open(false, 3000));
    }
}
