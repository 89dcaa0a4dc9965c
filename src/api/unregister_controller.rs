//! UnregisterController: v0
//!
//! Behaviour: forgets the registration of a controller, which may no longer be the active one. A controller that lives
//! registers again when it starts.

use super::refusal::Refusal;
use super::topic_view::text;
use super::{Api, Call, Request};
use crate::metadata::Image;
use crate::metadata::controllers::unregister;
use crate::types::{ErrorCode, NodeId};
use crate::wire::messages::{UnregisterControllerRequest, UnregisterControllerResponse};

pub async fn handle(
    api: &Api,
    _: &Call,
    request: Request<UnregisterControllerRequest>,
) -> UnregisterControllerResponse {
    let controller = NodeId(request.body.controller_id);
    let refused = match forget(api, controller).await {
        Ok(()) => return UnregisterControllerResponse { error_message: None, ..Default::default() },
        Err(refused) => refused,
    };
    UnregisterControllerResponse {
        error_code: refused.code.code(),
        error_message: Some(text(&refused.message)),
        ..Default::default()
    }
}

async fn forget(api: &Api, controller: NodeId) -> Result<(), Refusal> {
    if api.metadata.leader() == Some(controller) {
        let message = format!("controller {controller} is active and cannot be unregistered");
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    api.metadata.run(move |image: &Image| unregister(image, controller)).await??;
    Ok(())
}
