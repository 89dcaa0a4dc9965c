//! Layer 2, pure: the cluster's metadata records, the image that they fold into, and the decisions that produce them.
