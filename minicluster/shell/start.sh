#!/bin/bash
# Runs in place of a sidecar's command, with Flux on its PATH, once the broker in its pod responds.
#
# A command that succeeds is not started again: the container idles until the pod ends. One that fails ends the container, which
# Kubernetes starts again after a while.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

fq_hooks=sidecar-$1
# shellcheck source=SCRIPTDIR/environment.sh
. "${BASH_SOURCE[0]%/*}/environment.sh"
# shellcheck source=/dev/null
. "$fq_here/$fq_hooks.settings.sh"

# Waits for the broker of this pod, but not forever: a sidecar may be useful without it.
fq_await_broker() {
    local fq_until=$((SECONDS + fq_patience))
    until [ -S "${fq_uri#local://}" ]; do
        if [ "$SECONDS" -ge "$fq_until" ]; then
            fq_say "the broker of this pod has no socket after $fq_patience s; going on without"
            return
        fi
        sleep 0.2
    done
}

fq_mind_signals
fq_hook init
fq_find_flux
export fluxsocket=$fq_uri FLUX_URI=$fq_uri
fq_hook pre
fq_hook servicePre
[ "$fq_wait_socket" = no ] || fq_await_broker
[ "${#fq_command[@]}" = 0 ] || fq_attend "${fq_prefix[@]}" "${fq_command[@]}"
[ "$fq_ended" = no ] || exit 0
fq_hook post
[ "$fq_code" = 0 ] || fq_die "$fq_code" "sidecar ${fq_hooks#sidecar-} ended with code $fq_code"
while [ "$fq_ended" = no ]; do
    fq_attend sleep 3600
done
