//! What holds of a classic group whatever happens to it: each request is answered once; in a stable or empty group the
//! last record is the group; and a group whose members are all silent becomes empty.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::command::Identity;
use super::super::{Asked, Name, Now, Out, ReplyToken};
use super::*;
use crate::coordinator::group::record::Record;
use crate::types::{MonotonicMs, TimestampMs};
use crate::wire::messages::groups::GroupMetadataValue;

#[derive(Clone, Debug)]
enum Step {
    Join { who: usize, instance: Option<usize>, protocols: Vec<usize>, is_old: bool },
    Sync { who: usize, generation: i32 },
    Heartbeat { who: usize },
    Leave { who: usize },
    Tick { ms: i64 },
    Move,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..6usize;
    let protocols = prop::collection::vec(0..3usize, 1..3);
    let step = prop_oneof![
        6 => (who.clone(), prop::option::weighted(0.3, 0..2usize), protocols, any::<bool>()).prop_map(
            |(who, instance, protocols, is_old)| Step::Join { who, instance, protocols, is_old }
        ),
        6 => (who.clone(), prop_oneof![9 => Just(0), 1 => Just(1)])
            .prop_map(|(who, generation)| Step::Sync { who, generation }),
        3 => who.clone().prop_map(|who| Step::Heartbeat { who }),
        1 => who.prop_map(|who| Step::Leave { who }),
        4 => prop_oneof![0..5i64, 1_000..20_000i64, 50_000..400_000i64].prop_map(|ms| Step::Tick { ms }),
        1 => Just(Step::Move),
    ];
    prop::collection::vec(step, 1..60)
}

struct World {
    group: ClassicGroup,
    stored: Option<GroupMetadataValue>,
    now: Now,
    config: ClassicConfig,
    waiting: BTreeSet<ReplyToken>,
    tokens: u64,
}

impl World {
    fn token(&mut self) -> ReplyToken {
        self.tokens += 1;
        let token = ReplyToken(self.tokens);
        self.waiting.insert(token);
        token
    }

    /// Some member, or one that is none.
    fn someone(&self, who: usize) -> Name {
        self.group.members.keys().chain(self.group.pending.keys()).nth(who).cloned().unwrap_or_default()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let mut out = Out::default();
        let (now, config) = (self.now, self.config);
        match step {
            Step::Join { who, instance, protocols, is_old } => {
                let token = self.token();
                let join = Join {
                    member_id: self.someone(*who),
                    instance_id: instance.map(|instance| format!("i{instance}").into()),
                    client_id: "c".into(),
                    client_host: "/127.0.0.1".into(),
                    session_timeout_ms: 10_000,
                    rebalance_timeout_ms: 60_000,
                    protocol_type: CONSUMER_PROTOCOL_TYPE.into(),
                    protocols: protocols
                        .iter()
                        .map(|name| (format!("p{name}").into(), Bytes::new()))
                        .collect(),
                    requires_known_id: !is_old,
                    can_skip_assignment: !is_old,
                    fresh: Uuid::from_u128(u128::from(token.0)),
                };
                let is_new = self.stored.is_none();
                self.group.join(&Asked { token, request: join }, is_new, &config, now, &mut out);
            }
            Step::Sync { who, generation } => {
                let member_id = self.someone(*who);
                let token = self.token();
                let sync = Sync {
                    assignments: vec![(member_id.clone(), Bytes::from_static(b"all"))],
                    member_id,
                    instance_id: None,
                    generation: self.group.generation() - generation,
                    protocol_type: None,
                    protocol: None,
                };
                self.group.sync(Asked { token, request: sync }, &config, now, &mut out);
            }
            Step::Heartbeat { who } => {
                let member = Identity {
                    member_id: self.someone(*who),
                    instance_id: None,
                    generation: Some(self.group.generation()),
                };
                let _ = self.group.heartbeat(&member, now);
            }
            Step::Leave { who } => {
                let leaving = Leaving { member_id: self.someone(*who), instance_id: None };
                self.group.leave(&[leaving], &config, now, &mut out);
            }
            Step::Tick { ms } => {
                self.now.monotonic = self.now.monotonic.plus(*ms);
                self.now.wall = TimestampMs(self.now.wall.0 + ms);
                self.group.tick(&config, self.now, &mut out);
            }
            Step::Move => {
                if let Some(stored) = &self.stored {
                    self.group = ClassicGroup::from_stored("g".into(), stored).expect("a sound record");
                    self.group.begin(&config, now, &mut out);
                    // The driver sends away who waits.
                    self.waiting.clear();
                }
            }
        }
        self.check(out)
    }

    fn check(&mut self, out: Out) -> Result<(), TestCaseError> {
        for (token, _) in out.replies {
            prop_assert!(self.waiting.remove(&token), "answered twice: {:?}", token);
        }
        for write in out.records {
            let Record::GroupMetadata(_, Some(value)) = write.record else {
                panic!("not of a classic group")
            };
            self.stored = Some(value);
        }
        let kept =
            self.group.members.values().flat_map(|member| member.joining.into_iter().chain(member.syncing));
        prop_assert_eq!(kept.collect::<BTreeSet<_>>(), self.waiting.clone());
        if let (State::Stable, Some(stored)) = (self.group.state(), &self.stored) {
            prop_assert_eq!(&self.group.stored(), stored);
        }
        if let (State::Empty, Some(stored)) = (self.group.state(), &self.stored) {
            prop_assert_eq!((self.group.generation(), 0), (stored.generation, stored.members.len()));
        }
        if let Some(leader) = &self.group.leader {
            prop_assert!(self.group.members.contains_key(leader), "the leader is no member");
        }
        let instances = self.group.members.values().filter(|member| member.instance_id.is_some()).count();
        prop_assert_eq!(instances, self.group.instances.len());
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_group_keeps_its_laws(steps in steps(), max_size in 1..5usize) {
        let mut world = World {
            group: ClassicGroup::new("g".into(), TimestampMs(0)),
            stored: None,
            now: Now { monotonic: MonotonicMs(0), wall: TimestampMs(0) },
            config: ClassicConfig { max_size, ..ClassicConfig::default() },
            waiting: BTreeSet::new(),
            tokens: 0,
        };
        for step in &steps {
            world.step(step)?;
        }
        // Time alone ends everything.
        for _ in 0..100 {
            let Some(deadline) = world.group.next_deadline() else { break };
            let ms = (deadline.0 - world.now.monotonic.0).max(0);
            world.step(&Step::Tick { ms })?;
        }
        prop_assert_eq!(world.group.state(), State::Empty);
        prop_assert!(world.waiting.is_empty());
    }
}
