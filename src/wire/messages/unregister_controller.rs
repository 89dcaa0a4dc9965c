//! UnregisterController (key 94). Ours because the crate lacks it: it is new in Kafka 4.4.

messages! {
    message UnregisterControllerRequest (request 94, versions "0", flexible "0+") {
        controller_id: int32 "0+",
    }

    message UnregisterControllerResponse (response 94, versions "0", flexible "0+") {
        throttle_time_ms: int32 "0+",
        error_code: int16 "0+",
        error_message: string "0+" nullable "0+",
    }
}

exchanges! { UnregisterControllerRequest => UnregisterControllerResponse }
