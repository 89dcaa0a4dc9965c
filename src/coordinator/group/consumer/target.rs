//! The group epoch, which grows when what decides the assignment has changed, and the target assignment that follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::assignor::{Assignment, Assignor, Group, Subscriber};
use super::super::{Name, Out};
use super::member::{Member, MemberState};
use super::reconcile::{Towards, reconcile};
use super::{ConsumerConfig, ConsumerGroup, TopicPartitions, TopicWatch};
use crate::coordinator::Context;
use crate::types::{TimestampMs, TopicId};

/// Names, and a regular expression.
type Subscription<'a> = (&'a BTreeSet<Name>, Option<&'a Name>);

impl ConsumerGroup {
    /// Whether the cluster may have changed since the group last looked.
    pub(super) fn has_news(&self, context: &Context<'_>) -> bool {
        self.looked_at != Some(context.image.version)
    }

    /// Compares the subscribed topics with what they were, and begins a new group epoch if they are others, or if there is
    /// another reason to.
    pub(super) fn look_at_topics(
        &mut self,
        context: &Context<'_>,
        watch: &mut TopicWatch,
        has_changed: bool,
        out: &mut Out,
    ) {
        let hash = watch.hash_of_group(context.image, self.demand.keys());
        self.looked_at = Some(context.image.version);
        if has_changed || hash != self.metadata_hash {
            self.write(self.epoch_record(self.epoch + 1, hash), out);
        }
        if self.has_partition_metadata {
            self.write(self.partition_metadata_tombstone(), out);
        }
    }

    /// The assignor that most members ask for.
    pub(super) fn preferred_assignor(&self) -> Option<&Name> {
        let mut preferred: Option<(&Name, usize)> = None;
        for (name, count) in &self.assignors {
            if preferred.is_none_or(|(_, most)| *count > most) {
                preferred = Some((name, *count));
            }
        }
        preferred.map(|(name, _)| name)
    }

    pub(super) fn assignor(&self, config: &ConsumerConfig) -> Assignor {
        self.preferred_assignor().and_then(|name| Assignor::named(name)).unwrap_or(config.default_assignor)
    }

    /// Makes the target assignment of this group epoch, unless there is one, or the one before is too recent.
    pub(super) fn update_target(&mut self, context: &Context<'_>, config: &ConsumerConfig, out: &mut Out) {
        let now = context.now.wall;
        let interval_ms = i64::from(config.assignment_interval_ms);
        let is_free = self.target_made_at.0 == 0 || interval_ms == 0;
        if self.target_epoch >= self.epoch || !(is_free || now.minus(interval_ms) >= self.target_made_at) {
            return;
        }
        let question = self.question(context);
        let assignments = self.assignor(config).assign(&question);
        for (member, target) in question.members.iter().zip(assignments) {
            if self.target.get(&member.id) != Some(&target) {
                self.write(self.target_record(&member.id, &target), out);
            }
        }
        self.write(self.target_epoch_record(self.epoch, TimestampMs(now.0.max(0))), out);
    }

    fn question(&self, context: &Context<'_>) -> Group {
        // Members mostly ask for the same.
        let mut known: BTreeMap<Subscription<'_>, Arc<BTreeSet<TopicId>>> = BTreeMap::new();
        let mut group = Group { is_homogeneous: self.is_homogeneous(), ..Group::default() };
        for (id, member) in &self.members {
            let topics = known.entry((&member.topics, member.pattern())).or_insert_with(|| {
                let names = self.subscribed_topics(member);
                let topics: Vec<_> = names.filter_map(|name| context.image.topics.by_name(name)).collect();
                group.topics.extend(topics.iter().map(|topic| (topic.id, topic.partition_count())));
                Arc::new(topics.iter().map(|topic| topic.id).collect())
            });
            group.members.push(Subscriber {
                id: id.clone(),
                instance_id: member.instance_id.clone(),
                topics: topics.clone(),
                target: self.target.get(id).cloned().unwrap_or_default(),
            });
        }
        group
    }

    /// The names that a member asks for, those that its regular expression matches among them.
    fn subscribed_topics<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = &'a Name> {
        let matched = member.pattern().and_then(|regex| self.regexes.get(regex));
        member.topics.iter().chain(matched.into_iter().flat_map(|resolved| &resolved.topics))
    }

    /// Whether all members ask for the same: for the same names, or all by one regular expression.
    fn is_homogeneous(&self) -> bool {
        let everybody = self.members.len();
        match self.regex_subscribers.values().next() {
            None => self.demand.values().all(|demand| demand.by_name == everybody),
            Some(subscribers) => {
                *subscribers == everybody
                    && self.demand.values().all(|demand| demand.by_regex == 1 && demand.by_name == 0)
            }
        }
    }

    /// Takes the member a step towards its target.
    pub(super) fn reconcile_member(
        &mut self,
        context: &Context<'_>,
        id: &Name,
        owned: Option<&TopicPartitions>,
        has_subscription_changed: bool,
        out: &mut Out,
    ) {
        let Some(member) = self.members.get(id) else { return };
        if !has_subscription_changed && member.is_reconciled_to(self.target_epoch) {
            return;
        }
        let nothing = Assignment::new();
        let matched = member.pattern().and_then(|regex| self.regexes.get(regex));
        let next = reconcile(
            member,
            &Towards {
                epoch: self.target_epoch,
                target: self.target.get(id).unwrap_or(&nothing),
                owned,
                is_subscribed: &|topic| {
                    context.image.topics.by_id(topic).is_some_and(|topic| {
                        member.topics.contains(&topic.name)
                            || matched.is_some_and(|matched| matched.topics.contains(&topic.name))
                    })
                },
                is_held: &|topic, partition| self.owners.contains_key(&(topic, partition)),
                has_subscription_changed,
            },
        );
        let Some(next) = next else { return };
        // Who speaks the classic protocol has a time to join and a time to synchronise instead.
        if !next.is_classic() {
            let waits = next.state == MemberState::UnrevokedPartitions;
            let deadline = waits.then(|| context.now.monotonic.plus(next.rebalance_timeout_ms.into()));
            self.timers.set_rebalance(id, deadline.map(|deadline| (deadline, next.epoch)));
        }
        self.write(self.current_record(id, &next), out);
    }
}
