//! DescribeLogDirs: v1-5 (KIP-113)
//!
//! Behaviour: each log directory of this broker with the partitions asked for (a null list: all) and their sizes, also of
//! those that are being moved there (`isFutureKey`), the size of its volume and what is free on it. A directory that is out of service is KAFKA_STORAGE_ERROR.
//!
//! Version notes: 3 adds an error for the whole; 4 the volume (KIP-827); 5 whether the directory takes new partitions
//! (KIP-1066).

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::topic_view::text;
use super::{Api, Call, Request};
use crate::broker::directory::Directory;
use crate::broker::partitions::{FutureReplica, Partition};
use crate::types::{ErrorCode, Offset};
use crate::wire::messages::DescribeLogDirsRequest;
use crate::wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};

pub async fn handle(
    api: &Arc<Api>,
    _: &Call,
    request: Request<DescribeLogDirsRequest>,
) -> DescribeLogDirsResponse {
    let api = Arc::clone(api);
    // Volumes are asked for their size, which may block.
    let results = tokio::task::spawn_blocking(move || {
        let wanted = wanted(&request.body);
        let directories = api.broker().log_dirs.directories();
        let described = directories.iter().map(|directory| describe(&api, directory, wanted.as_ref()));
        described.chain(api.broker().log_dirs.lost().iter().map(|path| out_of_service(&api, path))).collect()
    });
    // The pool refuses work only while the process ends.
    DescribeLogDirsResponse { results: results.await.unwrap_or_default(), ..Default::default() }
}

type Wanted = HashSet<(String, i32)>;

/// `None` for all.
fn wanted(request: &DescribeLogDirsRequest) -> Option<Wanted> {
    let topics = request.topics.as_ref()?.iter();
    let named = topics
        .flat_map(|topic| topic.partitions.iter().map(|&partition| (topic.topic.to_string(), partition)));
    Some(named.collect())
}

fn out_of_service(api: &Api, path: &Path) -> DescribeLogDirsResult {
    let image = api.metadata.image();
    let has_cordons = image.metadata_version().has_cordoned_directories();
    DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.code(),
        log_dir: text(&absolute(path)),
        is_cordoned: has_cordons && api.config.at(&image).broker.cordons(path),
        ..Default::default()
    }
}

fn describe(api: &Api, directory: &Arc<Directory>, wanted: Option<&Wanted>) -> DescribeLogDirsResult {
    let result = out_of_service(api, directory.path());
    if !directory.is_online() {
        return result;
    }
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in api.broker().partitions.all().values() {
        let name = &partition.name;
        let is_wanted =
            wanted.is_none_or(|wanted| wanted.contains(&(name.topic.to_string(), name.partition.0)));
        if !is_wanted {
            continue;
        }
        let lies = partition.lies();
        let mut show = |shown| topics.entry(name.topic.to_string()).or_default().push(shown);
        if let Some(future) = lies.future.as_ref().filter(|future| Arc::ptr_eq(&future.directory, directory))
        {
            show(size_of_future(partition, future));
        } else if Arc::ptr_eq(&lies.directory, directory) {
            show(size(partition));
        }
    }
    let shown = topics.into_iter().map(|(name, mut partitions)| {
        partitions.sort_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic { name: text(&name), partitions, ..Default::default() }
    });
    let space = api.broker().log_dirs.space(directory).ok();
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    DescribeLogDirsResult {
        error_code: ErrorCode::None.code(),
        topics: shown.collect(),
        total_bytes: space.map_or(-1, |space| bytes(space.total)),
        usable_bytes: space.map_or(-1, |space| bytes(space.free)),
        ..result
    }
}

fn size(partition: &Partition) -> DescribeLogDirsPartition {
    let view = partition.view();
    DescribeLogDirsPartition {
        partition_index: partition.name.partition.0,
        partition_size: i64::try_from(view.size_in_bytes()).unwrap_or(i64::MAX),
        offset_lag: view.high_watermark.since(view.log_end).max(0),
        ..Default::default()
    }
}

fn size_of_future(partition: &Partition, future: &FutureReplica) -> DescribeLogDirsPartition {
    let view = future.view();
    let (size, end) = view.map_or((0, Offset::ZERO), |view| (view.size_in_bytes(), view.log_end));
    DescribeLogDirsPartition {
        partition_index: partition.name.partition.0,
        partition_size: i64::try_from(size).unwrap_or(i64::MAX),
        offset_lag: partition.view().log_end.since(end),
        is_future_key: true,
        ..Default::default()
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
