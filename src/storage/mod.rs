//! Layer 2: partition logs in Kafka's on-disk formats. Synchronous; files are touched only through `disk::Disk`.
