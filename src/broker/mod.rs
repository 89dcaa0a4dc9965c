//! Layer 3: drivers around the pure cores: shards, flushers, waiters, the reconciler.
