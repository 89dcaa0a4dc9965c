//! UpdateFeatures: v0-2 (KIP-584)
//!
//! Behaviour: changes the finalized levels of features, all or none.
//!
//! Version notes: 0 has "allow downgrade" where 1 has the type of the update, and cannot validate only; 0 and 1 tell the
//! outcome of each feature, 2 only that of the request.

use std::sync::Arc;
use std::time::Duration;

use super::refusal::{self, Refusal};
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::features::{FeatureUpdate, UpgradeType, update_features};
use crate::wire::messages::UpdateFeaturesRequest;
use crate::wire::messages::update_features_request::FeatureUpdateKey;
use crate::wire::messages::update_features_response::{UpdatableFeatureResult, UpdateFeaturesResponse};

pub async fn handle(api: &Api, _: &Call, request: Request<UpdateFeaturesRequest>) -> UpdateFeaturesResponse {
    let (version, request) = (request.version, request.body);
    let updates: Vec<FeatureUpdate> =
        request.feature_updates.iter().map(|update| feature_update(version, update)).collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let (controller, validate_only) = (api.node.id, request.validate_only);
    let min_isr = api.config.at(&api.metadata.image()).broker.min_insync_replicas;
    let decide = move |image: &Image| update_features(image, controller, &updates, validate_only, min_isr);
    let refused = match api.metadata.run_within(timeout, decide).await {
        Ok(Ok(())) => None,
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
