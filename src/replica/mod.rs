//! Layer 2, pure: what a partition's leader and followers decide. No I/O, no clock, no tokio.
