#!/usr/bin/env bash
# One node of a test's cluster, in the foreground: node.sh SERVER_PROPERTIES. $FLOODMARK is the binary; what else a node is
# formatted with comes in CLUSTER_ID, METADATA_VERSION, FEATURES ("name=level ...") and INITIAL_CONTROLLERS.
set -euo pipefail
options=(--config "$1" --cluster-id "$CLUSTER_ID" --ignore-formatted --release-version "$METADATA_VERSION")
for feature in $FEATURES; do options+=(--feature "$feature"); done
case $INITIAL_CONTROLLERS in
    static) ;;
    standalone) options+=(--standalone) ;;
    none) options+=(--no-initial-controllers) ;;
    *) options+=(--initial-controllers "$INITIAL_CONTROLLERS") ;;
esac
"$FLOODMARK" storage format "${options[@]}"
exec "$FLOODMARK" --config "$1"
