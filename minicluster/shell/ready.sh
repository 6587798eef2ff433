#!/bin/bash
# Succeeds if the broker of this pod has joined its instance, so that it reaches the leader (the leader itself always does). It is the
# readiness of the pod, from which the number of online brokers is counted.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

fq_here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
# shellcheck source=/dev/null
. "$fq_here/settings.sh"
[ -r "$fq_mount/flux-view.sh" ] || exit 1
# shellcheck source=/dev/null
. "$fq_mount/flux-view.sh"
exec flux ping --count=1 0 >/dev/null 2>&1
