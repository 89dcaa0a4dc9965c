//! Layer 4: one file per API, and the dispatch table. The only place that chooses Kafka error codes.
