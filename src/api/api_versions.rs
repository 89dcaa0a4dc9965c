//! ApiVersions: v0-5
//!
//! Behaviour: what `wire::api`'s table serves on the listener of the request, the features that this build supports and
//! those that the cluster has finalized. A version that the table does not serve is answered in version 0 with
//! UNSUPPORTED_VERSION and the versions of ApiVersions alone (KIP-511).
//!
//! Version notes: 3 requires a client name and version of a plain form; before 4, features whose lowest level is 0 are
//! left out (KAFKA-17011); 5 lets a client say whom it means to talk to, and REBOOTSTRAP_REQUIRED tells it that it is
//! wrong (KIP-1242).

use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::features::{KRAFT_VERSION, supported_features};
use crate::types::ErrorCode;
use crate::wire::api::{API_TABLE, API_VERSIONS, ApiRow};
use crate::wire::messages::ApiVersionsRequest;
use crate::wire::messages::api_versions_response::{
    ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

pub async fn handle(api: &Api, call: &Call, request: Request<ApiVersionsRequest>) -> ApiVersionsResponse {
    let (version, request) = (request.version, request.body);
    if version >= 3
        && !(is_plain(&request.client_software_name) && is_plain(&request.client_software_version))
    {
        return failed(ErrorCode::InvalidRequest);
    }
    if let Some(cluster_id) = &request.cluster_id
        && (cluster_id.as_str() != &*api.node.cluster_id || request.node_id != api.node.id.0)
    {
        return failed(ErrorCode::RebootstrapRequired);
    }
    let served = API_TABLE.iter().filter(|row| row.is_told() && call.serves(row.listeners));
    let mut response = ApiVersionsResponse { api_keys: served.map(versions).collect(), ..Default::default() };
    if version >= 3 {
        let image = api.metadata.image();
        let supported = supported_features();
        let supported = supported.iter().filter(|(_, min, _)| version >= 4 || *min > 0);
        response.supported_features = supported
            .map(|&(name, min, max)| SupportedFeatureKey {
                name: text(name),
                min_version: min,
                max_version: max,
                ..Default::default()
            })
            .collect();
        response.finalized_features_epoch = image.version.offset().0 - 1;
        let mut finalized = image.features.finalized();
        let kraft_version = api.metadata.kraft_version();
        if kraft_version > 0 {
            finalized.push((KRAFT_VERSION.into(), kraft_version));
            finalized.sort_unstable();
        }
        let finalized = finalized.into_iter();
        response.finalized_features = finalized
            .map(|(name, level)| FinalizedFeatureKey {
                name: text(&name),
                max_version_level: level,
                min_version_level: level,
                ..Default::default()
            })
            .collect();
    }
    response
}

/// The answer to a version that is not served; it is encoded in version 0.
pub fn unsupported_version() -> ApiVersionsResponse {
    let own = ApiRow::of(API_VERSIONS).into_iter().map(versions).collect();
    ApiVersionsResponse { api_keys: own, ..failed(ErrorCode::UnsupportedVersion) }
}

fn failed(error: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse { error_code: error.code(), ..Default::default() }
}

fn versions(row: &ApiRow) -> ApiVersion {
    ApiVersion {
        api_key: row.key,
        min_version: row.advertised_min,
        max_version: row.max,
        ..Default::default()
    }
}

/// Letters and digits, with dots and dashes between them.
fn is_plain(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_of_clients_are_checked() {
        assert!(is_plain("apache-kafka-java") && is_plain("4.4.0") && is_plain("x"));
        assert!(!is_plain("") && !is_plain("-x") && !is_plain("x.") && !is_plain("a b"));
    }
}
