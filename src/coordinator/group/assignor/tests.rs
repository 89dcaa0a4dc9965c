//! Both assignors on groups written as text. The expectations are those of Kafka 4.4's own tests of its assignors, but where
//! those depend on the order of a hash map; there they are what the rules give in the order of ids.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::types::Uuid;

fn topic(number: usize) -> TopicId {
    Uuid::from_u128(number as u128)
}

fn indexes(text: &str) -> BTreeSet<PartitionIndex> {
    text.split(',').map(|index| PartitionIndex(index.parse().expect("a partition"))).collect()
}

/// A group of lines: first the topics and their partitions, `t1:3 t2:2`; then members, `A[=instance] t1 t2 | t1:0,1 t2:0`,
/// with the topics that they are subscribed to, and what they were to have so far.
fn group(text: &str) -> Group {
    let number = |name: &str| name.strip_prefix('t').and_then(|name| name.parse().ok()).expect("a topic");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let topics = lines.next().expect("topics").split_whitespace();
    let counts = topics.map(|topic| topic.split_once(':').expect("a topic and its partitions"));
    let counts: BTreeMap<usize, usize> =
        counts.map(|(name, count)| (number(name), count.parse().expect("a number"))).collect();
    let mut members: Vec<Subscriber> = lines
        .map(|line| {
            let (wants, had) = line.split_once('|').unwrap_or((line, ""));
            let mut wants = wants.split_whitespace();
            let who = wants.next().expect("a member");
            let (id, instance) =
                who.split_once('=').map_or((who, None), |(id, instance)| (id, Some(instance)));
            let had = had.split_whitespace().map(|had| had.split_once(':').expect("partitions"));
            Subscriber {
                id: id.into(),
                instance_id: instance.map(Name::from),
                topics: Arc::new(wants.map(|name| topic(number(name))).collect()),
                target: had.map(|(name, list)| (topic(number(name)), indexes(list))).collect(),
            }
        })
        .collect();
    members.sort_by(|a, b| a.id.cmp(&b.id));
    let is_homogeneous = members.iter().all(|member| member.topics == members[0].topics);
    let subscribed: BTreeSet<TopicId> =
        members.iter().flat_map(|member| member.topics.iter().copied()).collect();
    let counts = counts.into_iter().map(|(number, count)| (topic(number), count));
    let topics = counts.filter(|(topic, _)| subscribed.contains(topic)).collect();
    Group { members, topics, is_homogeneous }
}

fn describe(group: &Group, assignments: &[Assignment]) -> String {
    let mut text = String::new();
    for (member, assignment) in group.members.iter().zip(assignments) {
        let _ = write!(text, "{}:", member.id);
        for (topic, indexes) in assignment {
            let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
            let _ = write!(text, " t{}:{}", topic.as_u128(), indexes.join(","));
        }
        text.push('\n');
    }
    text
}

fn check(assignor: Assignor, question: &str, answer: &str) {
    let group = group(question);
    let assignments = assignor.assign(&group);
    let answer: String = answer.lines().map(str::trim).filter(|line| !line.is_empty()).fold(
        String::new(),
        |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        },
    );
    assert_eq!(answer, describe(&group, &assignments), "{question}");
}

fn uniform(question: &str, answer: &str) {
    check(Assignor::Uniform, question, answer);
}

fn range(question: &str, answer: &str) {
    check(Assignor::Range, question, answer);
}

#[test]
fn names_are_those_of_clients() {
    for assignor in [Assignor::Uniform, Assignor::Range] {
        assert_eq!(Some(assignor), Assignor::named(assignor.name()));
    }
    assert_eq!(None, Assignor::named("cooperative-sticky"));
}

#[test]
fn nobody_and_nothing() {
    for assignor in [Assignor::Uniform, Assignor::Range] {
        assert!(assignor.assign(&Group { is_homogeneous: true, ..Group::default() }).is_empty());
        check(assignor, "t1:3\nA", "A:");
        check(assignor, "t1:3\nA\nB", "A:\nB:");
        check(assignor, "t1:3\nA t1\nB", "A: t1:0,1,2\nB:");
    }
}

#[test]
fn uniform_first_assignments() {
    uniform("t1:3 t3:2\nA t1 t3\nB t1 t3", "A: t1:0,1\nB: t1:2 t3:0,1");
    // The last ones have more where it does not come out even.
    uniform("t3:2\nA t3\nB t3\nC t3", "A:\nB: t3:0\nC: t3:1");
}

#[test]
fn uniform_reassignments() {
    // What is more than the share goes.
    uniform(
        "t1:3 t2:3
        A t1 t2 | t1:0,1 t2:0,1
        B t1 t2 | t1:2 t2:2",
        "A: t1:0,1 t2:0
        B: t1:2 t2:1,2",
    );
    // Partitions come.
    uniform(
        "t1:6 t2:5
        A t1 t2 | t1:0,2 t2:0
        B t1 t2 | t1:1 t2:1,2",
        "A: t1:0,2,3,4 t2:0
        B: t1:1,5 t2:1,2,3,4",
    );
    // A member comes.
    uniform(
        "t1:3 t2:3
        A t1 t2 | t1:0,2 t2:0
        B t1 t2 | t1:1 t2:1,2
        C t1 t2",
        "A: t1:0,2
        B: t1:1 t2:1
        C: t2:0,2",
    );
    // A member is gone.
    uniform(
        "t1:3 t2:3
        A t1 t2 | t1:0 t2:0
        B t1 t2 | t1:1 t2:1",
        "A: t1:0,2 t2:0
        B: t1:1 t2:1,2",
    );
    // A topic is not wanted any more.
    uniform(
        "t1:2 t2:2
        A t2 | t1:0 t2:0
        B t2 | t1:1 t2:1",
        "A: t2:0
        B: t2:1",
    );
}

#[test]
fn uniform_first_assignments_of_different_subscriptions() {
    uniform(
        "t1:3 t3:6
        A t1 t3
        B t3",
        "A: t1:0,1,2 t3:4
        B: t3:0,1,2,3,5",
    );
    uniform(
        "t1:2 t3:1
        A t3
        B t3
        C t1",
        "A: t3:0
        B:
        C: t1:0,1",
    );
}

#[test]
fn uniform_reassignments_of_different_subscriptions() {
    uniform(
        "t1:6 t2:4 t3:4
        A t1       | t1:0,1,2
        B t1 t2    | t1:3 t2:0
        C t1 t2 t3 | t1:4,5 t2:1,2,3 t3:0,1,2,3",
        "A: t1:0,1,2,5
        B: t1:3 t2:0,1,2,3
        C: t1:4 t3:0,1,2,3",
    );
    // Partitions come.
    uniform(
        "t1:6 t2:5 t3:3 t4:3
        A t1 t3       | t1:0,1,2,3 t3:0,1
        B t1 t2 t3 t4 | t2:0,1,2 t4:0,1,2",
        "A: t1:0,1,2,3,4,5 t3:0,1,2
        B: t2:0,1,2,3,4 t4:0,1,2",
    );
    // A member and partitions come, and a topic is not wanted any more.
    uniform(
        "t1:6 t2:7
        A t1    | t1:0,2 t2:0
        B t1 t2 | t1:1 t2:1,2
        C t1 t2",
        "A: t1:0,2,3,4,5
        B: t1:1 t2:1,2,6
        C: t2:0,3,4,5",
    );
    // A member is gone.
    uniform(
        "t1:3 t2:8 t3:3
        A t1 t3 | t1:0,1,2 t3:0,1
        B t2    | t2:3,4,5,6",
        "A: t1:0,1,2 t3:0,1,2
        B: t2:0,1,2,3,4,5,6,7",
    );
    uniform(
        "t1:3 t2:5
        A t1    | t1:0,2 t2:1,3
        B t1 t2 | t1:1 t2:0,2,4",
        "A: t1:0,1,2
        B: t2:0,1,2,3,4",
    );
    // The topics of the one with the most run out before it is even.
    let group = Group {
        is_homogeneous: false,
        ..group("t1:2 t2:2 t3:2\nA t1 t2 t3 | t1:0,1 t2:0,1 t3:0,1\nB t1 t2 t3")
    };
    let assignments = Assignor::Uniform.assign(&group);
    assert_eq!("A: t2:0 t3:0,1\nB: t1:0,1 t2:1\n", describe(&group, &assignments));
}

#[test]
fn range_first_assignments() {
    range("t1:3 t3:2\nA t1 t3\nB t1 t3", "A: t1:0,1 t3:0\nB: t1:2 t3:1");
    range(
        "t1:3 t2:3 t3:2
        A t1 t2
        B t3
        C t2 t3",
        "A: t1:0,1,2 t2:0,1
        B: t3:0
        C: t2:2 t3:1",
    );
    range(
        "t1:3 t3:2
        A t1 t3
        B t1 t3
        C t1 t3",
        "A: t1:0 t3:0
        B: t1:1 t3:1
        C: t1:2",
    );
}

#[test]
fn range_puts_static_members_first_by_instance() {
    range("t1:3\nA=a t1\nB=b t1", "A: t1:0,1\nB: t1:2");
    range("t1:3\nZ=a t1\nB=b t1", "B: t1:2\nZ: t1:0,1");
    range("t1:5\nA=a t1\nB t1\nC=c t1", "A: t1:0,1\nB: t1:4\nC: t1:2,3");
    range("t1:5\nZ=a t1\nB t1\nC=c t1", "B: t1:4\nC: t1:2,3\nZ: t1:0,1");
}

#[test]
fn range_reassignments() {
    range(
        "t1:2 t2:2
        A t1 t2 | t1:0 t2:0
        B t1 t2 | t1:1 t2:1
        C t1 t2",
        "A: t1:0 t2:0
        B: t1:1 t2:1
        C:",
    );
    range(
        "t1:4 t2:4
        A t1 t2 | t1:0,1 t2:0,1
        B t1 t2 | t1:2 t2:2",
        "A: t1:0,1 t2:0,1
        B: t1:2,3 t2:2,3",
    );
    range(
        "t1:4 t2:3
        A t1 t2 | t1:0,1 t2:0,1
        B t1 t2 | t1:2 t2:2
        C t1",
        "A: t1:0,1 t2:0,1
        B: t1:2 t2:2
        C: t1:3",
    );
    range("t1:3 t2:3\nB t1 t2 | t1:2 t2:2", "B: t1:0,1,2 t2:0,1,2");
    range(
        "t1:3 t2:3 t3:2
        A t1       | t1:0,1,2 t2:0
        B t1 t2 t3 | t2:1
        C t2       | t2:2 t3:0,1",
        "A: t1:0,1
        B: t1:2 t2:0,1 t3:0,1
        C: t2:2",
    );
}

/// Some members with subscriptions among some topics, all to the same ones or each to its own.
fn groups() -> impl Strategy<Value = Group> {
    let counts = prop::collection::vec(0..8usize, 1..6);
    let wants = prop::collection::vec(prop::collection::btree_set(0..6usize, 0..6), 1..8);
    (counts, wants, any::<bool>()).prop_map(|(counts, wants, is_same)| {
        let mut members = Vec::new();
        for (number, wanted) in wants.iter().enumerate() {
            let wanted = if is_same { &wants[0] } else { wanted };
            let topics = wanted.iter().filter(|topic| **topic < counts.len()).map(|number| topic(*number));
            members.push(Subscriber {
                id: format!("m{number}").into(),
                instance_id: None,
                topics: Arc::new(topics.collect()),
                target: Assignment::new(),
            });
        }
        with_topics(members, &counts, is_same)
    })
}

fn with_topics(members: Vec<Subscriber>, counts: &[usize], is_homogeneous: bool) -> Group {
    let subscribed: BTreeSet<TopicId> =
        members.iter().flat_map(|member| member.topics.iter().copied()).collect();
    let topics = counts.iter().enumerate().map(|(number, count)| (topic(number), *count));
    let topics = topics.filter(|(topic, _)| subscribed.contains(topic)).collect();
    Group { members, topics, is_homogeneous }
}

fn check_validity(group: &Group, assignments: &[Assignment]) -> Result<(), TestCaseError> {
    let mut owned = BTreeSet::new();
    for (member, assignment) in group.members.iter().zip(assignments) {
        for (topic, indexes) in assignment {
            prop_assert!(member.topics.contains(topic), "{} is not subscribed", member.id);
            prop_assert!(!indexes.is_empty());
            for index in indexes {
                prop_assert!(owned.insert((*topic, *index)), "{}-{} has two owners", topic, index);
            }
        }
    }
    let all = group.topics.iter().flat_map(|(topic, count)| partitions(*count).map(|index| (*topic, index)));
    prop_assert_eq!(all.collect::<BTreeSet<_>>(), owned);
    Ok(())
}

fn sizes(assignments: &[Assignment]) -> Vec<usize> {
    assignments.iter().map(|assignment| assignment.values().map(BTreeSet::len).sum()).collect()
}

fn moved(before: &[Assignment], after: &[Assignment]) -> usize {
    let gone = |(before, after): (&Assignment, &Assignment)| -> usize {
        before.iter().map(|(topic, had)| had.iter().filter(|index| !has(after, topic, index)).count()).sum()
    };
    before.iter().zip(after).map(gone).sum()
}

fn has(assignment: &Assignment, topic: &TopicId, index: &PartitionIndex) -> bool {
    assignment.get(topic).is_some_and(|indexes| indexes.contains(index))
}

proptest! {
    #[test]
    fn every_partition_has_one_owner_who_wants_it(group in groups()) {
        for assignor in [Assignor::Uniform, Assignor::Range] {
            let assignments = assignor.assign(&group);
            check_validity(&group, &assignments)?;
            if assignor == Assignor::Uniform && group.is_homogeneous {
                let sizes = sizes(&assignments);
                prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{:?}", sizes);
            }
        }
    }

    /// No single move makes it more even, among those who could have the partition.
    #[test]
    fn different_subscriptions_are_as_even_as_moves_can_make_them(group in groups()) {
        let assignments = Assignor::Uniform.assign(&group);
        let sizes = sizes(&assignments);
        for (from, assignment) in assignments.iter().enumerate() {
            for topic in assignment.keys() {
                for (to, member) in group.members.iter().enumerate() {
                    prop_assert!(!member.topics.contains(topic) || sizes[from] <= sizes[to] + 1, "{:?}", sizes);
                }
            }
        }
    }

    /// The same question again moves nothing; when a member goes, those that stay keep what they have, if all want the same.
    #[test]
    fn uniform_is_sticky(group in groups(), leaver in 0..8usize) {
        let mut group = group;
        let first = Assignor::Uniform.assign(&group);
        for (member, assignment) in group.members.iter_mut().zip(&first) {
            member.target.clone_from(assignment);
        }
        prop_assert_eq!(&first, &Assignor::Uniform.assign(&group));
        if leaver < group.members.len() && group.members.len() > 1 && group.is_homogeneous {
            group.members.remove(leaver);
            let mut before = first;
            before.remove(leaver);
            let after = Assignor::Uniform.assign(&group);
            check_validity(&group, &after)?;
            prop_assert_eq!(0, moved(&before, &after));
        }
    }

    /// When a member comes, no more moves than it gets.
    #[test]
    fn uniform_gives_a_new_member_its_share_and_moves_nothing_else(group in groups()) {
        prop_assume!(group.is_homogeneous);
        let mut group = group;
        let first = Assignor::Uniform.assign(&group);
        for (member, assignment) in group.members.iter_mut().zip(&first) {
            member.target.clone_from(assignment);
        }
        let topics = group.members[0].topics.clone();
        group.members.push(Subscriber { id: "z".into(), instance_id: None, topics, target: Assignment::new() });
        let after = Assignor::Uniform.assign(&group);
        check_validity(&group, &after)?;
        let newcomers = sizes(&after).pop().unwrap();
        prop_assert_eq!(newcomers, moved(&first, &after));
    }
}
