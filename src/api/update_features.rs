//! UpdateFeatures: v0-2 (KIP-584)
//!
//! Behaviour: changes the finalized levels of features, all or none. kraft.version is the quorum's own: from 0 to 1 the voters
//! of the configuration become ones that can be changed, for which all of them must be reached. That comes after the rest.
//!
//! Version notes: 0 has "allow downgrade" where 1 has the type of the update, and cannot validate only; 0 and 1 tell the
//! outcome of each feature, 2 only that of the request.

use std::sync::Arc;
use std::time::Duration;

use super::raft_voters::ask_leader;
use super::refusal::{self, Refusal};
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::controller::ChangeVotersError;
use crate::metadata::Image;
use crate::metadata::features::{DecidingNode, FeatureUpdate, KRAFT_VERSION, UpgradeType, update_features};
use crate::types::ErrorCode;
use crate::wire::messages::UpdateFeaturesRequest;
use crate::wire::messages::update_features_request::FeatureUpdateKey;
use crate::wire::messages::update_features_response::{UpdatableFeatureResult, UpdateFeaturesResponse};

/// The version in which the leader is asked.
const LATEST: i16 = 2;
/// The type of an update that only goes up.
const UPGRADE: i8 = 1;

pub async fn handle(
    api: &Api,
    call: &Call,
    request: Request<UpdateFeaturesRequest>,
) -> UpdateFeaturesResponse {
    let (version, request) = (request.version, request.body);
    let updates: Vec<FeatureUpdate> =
        request.feature_updates.iter().map(|update| feature_update(version, update)).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let kraft_version = api.metadata.kraft_version();
    let is_upgrade = |update: &&FeatureUpdate| *update.name == *KRAFT_VERSION && update.level > kraft_version;
    let upgrade = updates.iter().find(is_upgrade).cloned().filter(|_| !request.validate_only);
    let node = DecidingNode {
        id: api.node.id,
        kraft_version,
        min_insync_replicas: api.config.at(&api.metadata.image()).broker.min_insync_replicas,
    };
    let validate_only = request.validate_only;
    let decide = move |image: &Image| update_features(image, node, &updates, validate_only);
    let refused = match api.metadata.run_within(timeout, decide).await {
        Ok(Ok(())) => match upgrade {
            Some(upgrade) => upgrade_quorum(api, call, &upgrade, timeout).await.err(),
            None => None,
        },
        Ok(Err(error)) => Some(Refusal::new(refusal::feature(&error.reason), error.to_string())),
        Err(error) => Some(error.into()),
    };
    match refused {
        Some(refusal) => UpdateFeaturesResponse::default()
            .with_error_code(refusal.code.code())
            .with_error_message(Some(text(&refusal.message))),
        None if version <= 1 => {
            let done = request.feature_updates.iter();
            let done = done.map(|update| {
                UpdatableFeatureResult::default()
                    .with_feature(update.feature.clone())
                    .with_error_message(None)
            });
            UpdateFeaturesResponse::default().with_error_message(None).with_results(done.collect())
        }
        None => UpdateFeaturesResponse::default().with_error_message(None),
    }
}

/// Raises kraft.version, by asking whoever leads the quorum.
async fn upgrade_quorum(
    api: &Api,
    call: &Call,
    update: &FeatureUpdate,
    limit: Duration,
) -> Result<(), Refusal> {
    let update = FeatureUpdateKey::default()
        .with_feature(text(&update.name))
        .with_max_version_level(update.level)
        .with_upgrade_type(UPGRADE);
    let timeout_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    let request =
        UpdateFeaturesRequest::default().with_timeout_ms(timeout_ms).with_feature_updates(vec![update]);
    let told = |answer: &UpdateFeaturesResponse| match answer.error_code {
        code if code == ErrorCode::NotController.code() => ErrorCode::NotLeaderOrFollower.code(),
        code => code,
    };
    let answer = ask_leader(api, call.listener.role, LATEST, &request, limit, told).await;
    if let Some(answer) = answer {
        let code = ErrorCode::from_code(answer.error_code).unwrap_or(ErrorCode::UnknownServerError);
        let message = answer.error_message.unwrap_or_default();
        return if code == ErrorCode::None { Ok(()) } else { Err(Refusal::new(code, message.to_string())) };
    }
    let made = api.raft.voters().make_dynamic(limit).await;
    made.map_err(|error| {
        let code = match error {
            ChangeVotersError::NotLeader { .. } => ErrorCode::NotController,
            ChangeVotersError::Timeout => ErrorCode::RequestTimedOut,
            _ => ErrorCode::InvalidUpdateVersion,
        };
        Refusal::new(code, format!("{KRAFT_VERSION} stays as it is: {error}"))
    })
}

fn feature_update(version: i16, update: &FeatureUpdateKey) -> FeatureUpdate {
    let upgrade_type = match (version, update.upgrade_type) {
        (0, _) if update.allow_downgrade => UpgradeType::SafeDowngrade,
        (0, _) | (_, 1) => UpgradeType::Upgrade,
        (_, 2) => UpgradeType::SafeDowngrade,
        (_, 3) => UpgradeType::UnsafeDowngrade,
        _ => UpgradeType::Unknown,
    };
    FeatureUpdate { name: Arc::from(update.feature.as_str()), level: update.max_version_level, upgrade_type }
}
