//! Layer 1: every setting under Kafka's property name, typed; files, environment, command line and the dynamic overlay.
