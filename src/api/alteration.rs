//! What AlterConfigs and IncrementalAlterConfigs share: which resources are refused before the controller is asked, and how
//! the outcome of each finds its way back to its place in the request.

use std::collections::{HashMap, HashSet};

use super::call::ListenerRole;
use super::config_resource::{BROKER, BROKER_LOGGER, this_node};
use super::refusal::Refusal;
use super::{Api, Call, config_rules};
use crate::metadata::configs::{AlterConfigsReply, ConfigResource, ConfigRules, ResourceType};
use crate::metadata::{Decision, Image};
use crate::types::ErrorCode;

/// One resource of a request; `C` is what may be done to a key.
pub struct Altered<'a, C> {
    pub kind: i8,
    pub name: &'a str,
    pub keys: Vec<&'a str>,
    /// Keys that should have a value and have none.
    pub without_value: Vec<&'a str>,
    pub changes: Result<Vec<C>, Refusal>,
}

/// How the controller decides on one form of the request.
pub type Decide<C> =
    fn(&Image, &[(ConfigResource, Vec<C>)], bool, &ConfigRules<'_>) -> Decision<AlterConfigsReply>;

/// Alters the levels of the loggers in the resource with this index of the request.
pub type AlterLoggers<'a> = &'a (dyn Fn(usize) -> Result<(), Refusal> + Sync);

/// Alters each resource, or says why not, in their order. Without `loggers` this form of the request has none.
pub async fn alter<C: Clone + Send + Sync + 'static>(
    api: &Api,
    call: &Call,
    resources: Vec<Altered<'_, C>>,
    validate_only: bool,
    decide: Decide<C>,
    loggers: Option<AlterLoggers<'_>>,
) -> Vec<Result<(), Refusal>> {
    let mut outcomes = refuse(api, call, &resources, loggers.is_some());
    let (mut places, mut asked) = (Vec::new(), Vec::new());
    for (place, (resource, outcome)) in resources.into_iter().zip(&mut outcomes).enumerate() {
        if outcome.is_err() {
            continue;
        }
        match (resource.changes, ResourceType::from_code(resource.kind)) {
            (Err(refusal), _) => *outcome = Err(refusal),
            (Ok(changes), Some(kind)) => {
                places.push(place);
                asked.push((ConfigResource::new(kind, resource.name), changes));
            }
            // All that is left is loggers.
            (Ok(_), None) => *outcome = loggers.map_or(Ok(()), |alter| alter(place)),
        }
    }
    for (place, decided) in places.into_iter().zip(run(api, asked, validate_only, decide).await) {
        outcomes[place] = decided;
    }
    outcomes
}

/// Has the controller decide; the outcomes are in the order of `asked`.
async fn run<C: Clone + Send + Sync + 'static>(
    api: &Api,
    asked: Vec<(ConfigResource, Vec<C>)>,
    validate_only: bool,
    decide: Decide<C>,
) -> Vec<Result<(), Refusal>> {
    if asked.is_empty() {
        return Vec::new();
    }
    let count = asked.len();
    let effective = api.config.at(&api.metadata.image());
    let decided = api.metadata.run(move |image: &Image| {
        let rules = config_rules::Rules::new(&effective.layers, image);
        decide(image, &asked, validate_only, &rules.rules())
    });
    match decided.await {
        Ok(outcomes) => outcomes.into_iter().map(|(_, outcome)| outcome.map_err(Refusal::from)).collect(),
        Err(error) => vec![Err(Refusal::from(error)); count],
    }
}

/// What needs no controller to be refused.
fn refuse<C>(
    api: &Api,
    call: &Call,
    resources: &[Altered<'_, C>],
    has_loggers: bool,
) -> Vec<Result<(), Refusal>> {
    let mut times: HashMap<(i8, &str), usize> = HashMap::new();
    for resource in resources {
        *times.entry((resource.kind, resource.name)).or_default() += 1;
    }
    let refuse_one = |resource: &Altered<'_, C>| {
        if times[&(resource.kind, resource.name)] > 1 {
            return Err(Refusal::new(ErrorCode::InvalidRequest, "the resource is named more than once"));
        }
        check(api, call, resource, has_loggers)
    };
    resources.iter().map(refuse_one).collect()
}

fn check<C>(api: &Api, call: &Call, resource: &Altered<'_, C>, has_loggers: bool) -> Result<(), Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    let mut seen = HashSet::new();
    if let Some(twice) = resource.keys.iter().find(|key| !seen.insert(**key)) {
        return invalid(format!("key {twice} is named more than once"));
    }
    if !resource.without_value.is_empty() {
        return invalid(format!("a value is missing for: {}", resource.without_value.join(", ")));
    }
    match resource.kind {
        BROKER if resource.name.is_empty() => Ok(()),
        // A controller decides for every node that is registered; a broker is asked by those who want this one.
        BROKER if call.listener.role == ListenerRole::Controller => Ok(()),
        BROKER => this_node(api, resource.name),
        BROKER_LOGGER if has_loggers => this_node(api, resource.name),
        kind if ResourceType::from_code(kind).is_some() => Ok(()),
        kind => invalid(format!("resources of type {kind} cannot be altered")),
    }
}
