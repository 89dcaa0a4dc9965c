//! Layer 3: the metadata quorum. The only place that names openraft.
