//! Layer 5: listeners, connections, the request pipeline.
