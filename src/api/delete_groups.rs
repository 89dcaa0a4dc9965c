//! DeleteGroups: v0-3
//!
//! Behaviour: forgets groups that have no members, with all that they have committed; each succeeds or fails by itself. A group
//! that is named twice is answered once.
//!
//! Version notes: 3 adds a message (KIP-1331), for what outside of the coordinator may fail, of which there is nothing here.

use std::collections::{HashMap, HashSet};

use super::coordination::reply;
use super::topic_view::text;
use super::{Answer, Api, Call, Request};
use crate::coordinator::group::reply::DeleteGroupError;
use crate::coordinator::group::{Command, Name};
use crate::types::ErrorCode;
use crate::wire::messages::delete_groups::DeletableGroupResult;
use crate::wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse, StrBytes};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<DeleteGroupsRequest>,
) -> Answer<DeleteGroupsResponse> {
    let asked = request.body.groups_names;
    let mut parts = Vec::new();
    for (partition, groups) in api.by_partition(asked.iter().map(StrBytes::as_str)) {
        let pending = api.broker().groups.ask(partition, Command::DeleteGroups(groups.clone())).await;
        parts.push((groups, pending));
    }
    Answer::Later(Box::pin(async move {
        let mut codes: HashMap<Name, ErrorCode> = HashMap::new();
        for (groups, pending) in parts {
            match reply!(pending, DeleteGroups) {
                Ok(deleted) => codes.extend(
                    deleted
                        .into_iter()
                        .map(|(group, result)| (group, result.map_or_else(code, |()| ErrorCode::None))),
                ),
                Err(error) => codes.extend(groups.into_iter().map(|group| (group, error))),
            }
        }
        let mut answered = HashSet::new();
        let results = asked.iter().filter(|group| answered.insert(group.as_str())).map(|group| {
            let code = codes.get(group.as_str()).copied().unwrap_or(ErrorCode::UnknownServerError);
            DeletableGroupResult { group_id: text(group), error_code: code.code(), ..Default::default() }
        });
        Answer::Now(DeleteGroupsResponse { results: results.collect(), ..Default::default() })
    }))
}

fn code(error: DeleteGroupError) -> ErrorCode {
    match error {
        DeleteGroupError::GroupNotFound => ErrorCode::GroupIdNotFound,
        DeleteGroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
    }
}
