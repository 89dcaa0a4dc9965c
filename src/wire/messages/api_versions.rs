//! ApiVersions (key 18). Ours because the crate stops at version 4.
//!
//! - 1: throttle time. 3: flexible; the client's name and version, the features; the response's header stays as it was
//!   (KIP-511). 4: a feature may start at version 0. 5: the client says which cluster and node it means to reach, and is
//!   told to bootstrap again if it reached another (KIP-1242).

messages! {
    message ApiVersionsRequest (request 18, versions "0-5", flexible "3+") {
        client_software_name: string "3+" ignorable true,
        client_software_version: string "3+" ignorable true,
        cluster_id: string "5+" nullable "5+" ignorable true = null,
        node_id: int32 "5+" ignorable true = -1,
    }

    message ApiVersionsResponse (response 18, versions "0-5", flexible "3+") {
        error_code: int16 "0+",
        api_keys: [ApiVersion] "0+",
        throttle_time_ms: int32 "1+" ignorable true,
        supported_features: [SupportedFeatureKey] "3+" tagged "3+" tag 0 ignorable true,
        /// -1 while it is not known.
        finalized_features_epoch: int64 "3+" tagged "3+" tag 1 ignorable true = -1,
        finalized_features: [FinalizedFeatureKey] "3+" tagged "3+" tag 2 ignorable true,
        zk_migration_ready: bool "3+" tagged "3+" tag 3 ignorable true,
    }
    struct ApiVersion {
        api_key: int16 "0+",
        min_version: int16 "0+",
        max_version: int16 "0+",
    }
    struct SupportedFeatureKey {
        name: string "3+",
        min_version: int16 "3+",
        max_version: int16 "3+",
    }
    struct FinalizedFeatureKey {
        name: string "3+",
        max_version_level: int16 "3+",
        min_version_level: int16 "3+",
    }
}

exchanges! { ApiVersionsRequest => ApiVersionsResponse }
