#!/usr/bin/env bash
# As node.sh, in a container of the image $IMAGE, which sees the test's folder $ITS_WORK and the host's network. Whatever happens to
# this process happens to the container: it hears the signals, and its shell ends the node when its input does, as after a SIGKILL.
set -euo pipefail
exec docker run --rm -i --network host --user "$(id -u)" -v "$ITS_WORK:$ITS_WORK" -v "$(dirname "$(readlink -f "$0")"):/its:ro" \
    -e CLUSTER_ID -e METADATA_VERSION -e FEATURES -e INITIAL_CONTROLLERS -e DIRECTORY_ID \
    -e FLOODMARK=floodmark -e FLOODMARK_AS_KAFKA_IMAGE=false \
    "$IMAGE" bash -c '
        exec 3<&0
        /its/node.sh "$1" 3<&- </dev/null &
        node=$!
        trap "kill -TERM $node" TERM
        (cat <&3 >/dev/null; kill -KILL $node) &
        until wait $node; code=$?; ! kill -0 $node 2>/dev/null; do :; done
        exit ${code:-0}' its "$1" < <(exec tail -f --pid=$$ /dev/null)
