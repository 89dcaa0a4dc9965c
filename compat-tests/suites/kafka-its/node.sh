#!/usr/bin/env bash
# One node of a test's cluster, in the foreground: node.sh SERVER_PROPERTIES. $FLOODMARK is the binary; what else a node is
# formatted with comes in CLUSTER_ID, METADATA_VERSION, FEATURES ("name=level ...") and INITIAL_CONTROLLERS. With DIRECTORY_ID the
# metadata directory gets this id, also where the initial controllers know another one: as a controller that has lost its disk.
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
if [ -n "${DIRECTORY_ID:-}" ]; then
    directory=$(sed -n 's/^metadata\.log\.dir=//p' "$1")
    sed -i "s/^directory\.id=.*/directory.id=$DIRECTORY_ID/" "$directory/meta.properties"
fi
exec "$FLOODMARK" --config "$1"
