//! What operators ask: which groups there are, how they stand; and the deletion of groups.

use super::super::classic::{CONSUMER_PROTOCOL_TYPE, ClassicDescription};
use super::super::command::Filter;
use super::super::consumer::Described;
use super::super::reply::{DeleteGroupError, DescribeError, GroupType, ListedGroup};
use super::super::{Name, Out};
use super::{Group, Groups};
use crate::coordinator::Context;

impl Groups {
    /// The groups in the order of their ids.
    pub(super) fn list(&self, filter: &Filter) -> Vec<ListedGroup> {
        let listed = self.groups.iter().map(|(id, entry)| match &entry.group {
            Group::Classic(group) => ListedGroup {
                id: id.clone(),
                protocol_type: group.protocol_type().cloned().unwrap_or_default(),
                state: group.state().name(),
                kind: GroupType::Classic,
            },
            Group::Consumer(group) => ListedGroup {
                id: id.clone(),
                protocol_type: CONSUMER_PROTOCOL_TYPE.into(),
                state: group.state().name(),
                kind: GroupType::Consumer,
            },
        });
        let passes = |filter: &[String], word: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.trim().eq_ignore_ascii_case(word))
        };
        let mut listed: Vec<ListedGroup> = listed
            .filter(|group| passes(&filter.states, group.state) && passes(&filter.types, group.kind.name()))
            .collect();
        listed.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        listed
    }

    pub(super) fn describe(&self, ids: Vec<Name>) -> Vec<(Name, Result<ClassicDescription, DescribeError>)> {
        let describe = |id: Name| {
            let described = match self.groups.get(&id).map(|entry| &entry.group) {
                Some(Group::Classic(group)) => Ok(group.describe()),
                Some(Group::Consumer(_)) => Err(DescribeError::OtherType),
                None => Err(DescribeError::GroupNotFound),
            };
            (id, described)
        };
        ids.into_iter().map(describe).collect()
    }

    pub(super) fn describe_consumer_groups(
        &self,
        context: &Context<'_>,
        ids: Vec<Name>,
    ) -> Vec<(Name, Result<Described, DescribeError>)> {
        let describe = |id: Name| {
            let described = match self.groups.get(&id).map(|entry| &entry.group) {
                Some(Group::Consumer(group)) => {
                    Ok(group.describe(&self.consumer_config(context, &id), context.image))
                }
                Some(Group::Classic(_)) => Err(DescribeError::OtherType),
                None => Err(DescribeError::GroupNotFound),
            };
            (id, described)
        };
        ids.into_iter().map(describe).collect()
    }

    pub(super) fn delete(
        &mut self,
        ids: Vec<Name>,
        out: &mut Out,
    ) -> Vec<(Name, Result<(), DeleteGroupError>)> {
        let mut results = Vec::new();
        for id in ids {
            let result = self.check_delete(&id);
            if result.is_ok() {
                self.offsets.delete_group(&id, out);
                self.bury(&id, out);
            }
            results.push((id, result));
        }
        results
    }

    fn check_delete(&self, id: &str) -> Result<(), DeleteGroupError> {
        match self.groups.get(id).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => group.check_delete(),
            Some(Group::Consumer(group)) if !group.is_empty() => Err(DeleteGroupError::NonEmptyGroup),
            Some(Group::Consumer(_)) => Ok(()),
            None => Err(DeleteGroupError::GroupNotFound),
        }
    }

    /// Ends a group, whose offsets are gone.
    pub(super) fn bury(&mut self, id: &str, out: &mut Out) {
        match self.groups.get(id).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => out.record(group.tombstone()),
            Some(Group::Consumer(group)) => {
                group.tombstones().into_iter().for_each(|record| out.record(record));
            }
            None => {}
        }
        self.remove(id);
    }
}
