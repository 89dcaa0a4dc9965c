//! Single steps, each from a state written as text. The expectations are those of Kafka 4.4's own tests of the same step.

use super::*;
use crate::types::Uuid;

/// `Stable 11/10 t1:1,2@10 t1:3@11 | t2:4@10`: state, epoch, the one before, what it has, what it has to give up.
fn member(text: &str) -> Member {
    let (has, gives_up) = text.split_once('|').unwrap_or((text, ""));
    let mut words = has.split_whitespace();
    let state = match words.next().expect("a state") {
        "Stable" => MemberState::Stable,
        "Unrevoked" => MemberState::UnrevokedPartitions,
        "Unreleased" => MemberState::UnreleasedPartitions,
        "Unknown" => MemberState::Unknown(99),
        other => panic!("{other} is no state"),
    };
    let (epoch, previous) = words.next().and_then(|epochs| epochs.split_once('/')).expect("epochs");
    Member {
        state,
        epoch: epoch.parse().expect("an epoch"),
        previous_epoch: previous.parse().expect("an epoch"),
        assigned: owned(words),
        revoking: owned(gives_up.split_whitespace()),
        ..Member::new()
    }
}

fn owned<'a>(words: impl Iterator<Item = &'a str>) -> Owned {
    let mut owned = Owned::new();
    for word in words {
        let (partitions, epoch) = word.split_once('@').expect("an epoch");
        let epoch: i32 = epoch.parse().expect("an epoch");
        for (topic, indexes) in listed(partitions) {
            owned.entry(topic).or_default().extend(indexes.into_iter().map(|index| (index, epoch)));
        }
    }
    owned
}

fn topic(name: &str) -> TopicId {
    Uuid::from_u128(name.trim_start_matches('t').parse().expect("a topic"))
}

fn listed(text: &str) -> TopicPartitions {
    let topics = text.split_whitespace().filter(|word| *word != "-");
    topics
        .map(|word| {
            let (name, indexes) = word.split_once(':').expect("partitions");
            let indexes = indexes.split(',').map(|index| PartitionIndex(index.parse().expect("a number")));
            (topic(name), indexes.collect())
        })
        .collect()
}

/// What a step depends on, with what most of them have in common: nobody else has anything, the member does not say what
/// it has, and it is subscribed to everything.
struct Case {
    epoch: i32,
    target: &'static str,
    others_have: &'static [&'static str],
    owned: Option<&'static str>,
    subscribed: &'static [&'static str],
    has_changed: bool,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            epoch: 11,
            target: "",
            others_have: &[],
            owned: None,
            subscribed: &["t1", "t2"],
            has_changed: false,
        }
    }
}

fn check(before: &str, case: &Case, after: &str) {
    let target: Assignment = listed(case.target)
        .into_iter()
        .map(|(topic, indexes)| (topic, indexes.into_iter().collect()))
        .collect();
    let owned = case.owned.map(listed);
    let member_before = member(before);
    let others_have: Vec<TopicId> = case.others_have.iter().map(|name| topic(name)).collect();
    let subscribed: Vec<TopicId> = case.subscribed.iter().map(|name| topic(name)).collect();
    let held: Vec<_> = member_before.held().collect();
    let next = reconcile(
        &member_before,
        &Towards {
            epoch: case.epoch,
            target: &target,
            owned: owned.as_ref(),
            is_subscribed: &|topic| subscribed.contains(&topic),
            is_held: &|topic, index| others_have.contains(&topic) || held.contains(&(topic, index)),
            has_subscription_changed: case.has_changed,
        },
    );
    assert_eq!(member(after), next.unwrap_or(member_before), "from {before} to {}", case.target);
}

#[test]
fn from_stable() {
    let before = "Stable 10/10 t1:1,2,3@5 t2:4,5,6@5";
    let target = "t1:1,2,3 t2:4,5,6";
    // In the same epoch there is nothing to do.
    check(before, &Case { epoch: 10, target: "t1:1", ..Case::default() }, before);
    // What others have does not matter to who keeps what it has.
    let case = Case { target, others_have: &["t1", "t2"], ..Case::default() };
    check(before, &case, "Stable 11/10 t1:1,2,3@5 t2:4,5,6@5");
    let more = "t1:1,2,3,4 t2:4,5,6,7";
    let case = Case { target: more, ..Case::default() };
    check(before, &case, "Stable 11/10 t1:1,2,3@5 t1:4@11 t2:4,5,6@5 t2:7@11");
    let case = Case { target: more, others_have: &["t1", "t2"], ..Case::default() };
    check(before, &case, "Unreleased 11/10 t1:1,2,3@5 t2:4,5,6@5");
    let case = Case { target: "t1:2,3,4 t2:5,6,7", ..Case::default() };
    check(before, &case, "Unrevoked 10/10 t1:2,3@5 t2:5,6@5 | t1:1@5 t2:4@5");
    // The client does not have what it would have to give up.
    let case =
        Case { target: "t1:1,2,3 t2:4,5,7", others_have: &["t2"], owned: Some("-"), ..Case::default() };
    check(before, &case, "Unreleased 11/10 t1:1,2,3@5 t2:4,5@5");
}

#[test]
fn from_unrevoked() {
    let before = "Unrevoked 10/10 t1:2,3@10 t2:5,6@10 | t1:1@10 t2:4@10";
    let case = Case { target: "t1:2,3 t2:5,6", owned: Some("t1:2,3 t2:5,6"), ..Case::default() };
    check(before, &case, "Stable 11/10 t1:2,3@10 t2:5,6@10");
    // It may still have something, whatever the target is by now.
    for owned in [None, Some("t1:1,2,3 t2:5,6"), Some("t1:2,3 t2:4,5,6")] {
        check(before, &Case { epoch: 12, target: "t1:3 t2:6", owned, ..Case::default() }, before);
    }
    // It has given up, and there is more of that.
    let case = Case { epoch: 12, target: "t1:3 t2:6", owned: Some("t1:2,3 t2:5,6"), ..Case::default() };
    check(before, &case, "Unrevoked 10/10 t1:3@10 t2:6@10 | t1:2@10 t2:5@10");
    let case = Case {
        target: "t1:2,3,4 t2:5,6,7",
        others_have: &["t1", "t2"],
        owned: Some("t1:2,3 t2:5,6"),
        ..Case::default()
    };
    check("Unrevoked 11/10 t1:2,3@11 t2:5,6@11", &case, "Unreleased 11/11 t1:2,3@11 t2:5,6@11");
    // What it has given up comes back.
    let case =
        Case { epoch: 12, target: "t1:2,3,4 t2:5,6,7", owned: Some("t1:2,3 t2:5,6"), ..Case::default() };
    check(
        "Unrevoked 10/10 t1:2,3@10 t2:5,6@10 | t1:4@10",
        &case,
        "Stable 12/10 t1:2,3@10 t1:4@12 t2:5,6@10 t2:7@12",
    );
}

#[test]
fn from_unreleased() {
    let before = "Unreleased 11/11 t1:2,3@11 t2:5,6@11";
    let others_have: &[&str] = &["t1", "t2"];
    let case = Case { epoch: 12, target: "t1:2,3 t2:5,6", others_have, ..Case::default() };
    check(before, &case, "Stable 12/11 t1:2,3@11 t2:5,6@11");
    let more = "t1:2,3,4 t2:5,6,7";
    check(before, &Case { target: more, ..Case::default() }, "Stable 11/11 t1:2,3,4@11 t2:5,6,7@11");
    check(before, &Case { target: more, others_have, ..Case::default() }, before);
    // Of one topic it is free, of the other it is not.
    let case = Case { target: more, others_have: &["t2"], ..Case::default() };
    check(before, &case, "Unreleased 11/11 t1:2,3,4@11 t2:5,6@11");
    let case = Case { epoch: 12, target: "t1:3 t2:6", others_have, ..Case::default() };
    check(before, &case, "Unrevoked 11/11 t1:3@11 t2:6@11 | t1:2@11 t2:5@11");
}

#[test]
fn from_a_state_that_is_not_known() {
    let case = Case { epoch: 12, target: "t1:3 t2:6", owned: Some("-"), ..Case::default() };
    check("Unknown 11/11 t1:3@11 t2:6@11 | t1:2@11 t2:5@11", &case, "Stable 12/11 t1:3@11 t2:6@11");
}

#[test]
fn what_the_member_does_not_want_any_more_goes() {
    let before = "Stable 10/9 t1:1,2,3@10 t2:4,5,6@10";
    let target = "t1:1,2,3 t2:4,5,6";
    let subscribed: &[&str] = &["t2"];
    // With a new target the subscription always counts, with the old one when it has just changed.
    for (epoch, has_changed) in [(11, false), (11, true), (10, true)] {
        let case =
            Case { epoch, target, owned: Some("t2:4,5,6"), subscribed, has_changed, ..Case::default() };
        check(before, &case, &format!("Stable {epoch}/10 t2:4,5,6@10"));
        for owned in [None, Some("t1:1,2,3 t2:4,5,6")] {
            let case = Case { epoch, target, owned, subscribed, has_changed, ..Case::default() };
            check(before, &case, "Unrevoked 10/10 t2:4,5,6@10 | t1:1,2,3@10");
        }
    }
    check(before, &Case { epoch: 10, target, subscribed, ..Case::default() }, before);
    // There is something to give up already.
    let case = Case { epoch: 12, target, subscribed, has_changed: true, ..Case::default() };
    check(
        "Unrevoked 10/10 t1:2,3@10 t2:5,6@10 | t1:1@10 t2:4@10",
        &case,
        "Unrevoked 10/10 t2:5,6@10 | t1:1,2,3@10 t2:4@10",
    );
    // All of it.
    let case = Case { epoch: 10, target, subscribed: &[], has_changed: true, ..Case::default() };
    check(before, &case, "Unrevoked 10/10 | t1:1,2,3@10 t2:4,5,6@10");
}
