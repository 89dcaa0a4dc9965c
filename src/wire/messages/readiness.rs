//! Our own question to a node: whether it serves, and what it waits for if it does not. Health checks ask it, on the listener on which
//! they would want to be served; it is answered while the node starts.

messages! {
    message ReadinessRequest (request 30008, versions "0", flexible "0+") {
    }

    message ReadinessResponse (response 30008, versions "0", flexible "0+") {
        node_id: int32 "0+",
        cluster_id: string "0+",
        /// The node that leads the metadata quorum, -1 if that is not known.
        leader: int32 "0+" = -1,
        /// Why the node does not serve; null if it does.
        not_ready: string "0+" nullable "0+" = null,
    }
}

exchanges! {
    ReadinessRequest => ReadinessResponse,
}
