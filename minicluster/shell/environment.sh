#!/bin/bash
# The common beginning of every script of a MiniCluster: settings, paths of its files, and Flux on the PATH. It is sourced, never run.
#
# All names begin with fq_, because hooks that people wrote run in the same shell. Settings come from settings.sh next to this file, where
# each value is quoted; text that people wrote is only ever a file that is sourced or run, or words of an array.
# shellcheck disable=SC2154,SC2034 # settings.sh assigns every fq_ name that is not assigned here; the scripts use what is not used here

fq_here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
# shellcheck source=/dev/null
. "$fq_here/settings.sh"

fq_config=$fq_mount/config
fq_rundir=$fq_config/run/flux
fq_rank=${JOB_COMPLETION_INDEX:-${HOSTNAME##*-}}
fq_uri=local://$fq_rundir/local
[ "$fq_socket" = yes ] || fq_uri+=-$fq_rank # the name Flux gives it
fq_stage=
fq_muted=no
fq_again=213 # the exit code of a broker that another one may replace; podFailurePolicy knows it

fq_say() {
    [ "$fq_quiet" = yes ] || printf 'fluxqueue: %s\n' "$*" >&2
}

# The sentence is also the message of the container in the pod's status.
fq_die() { # exit code, sentence
    printf 'fluxqueue: %s\n' "$2" >&2
    { printf '%s' "$2" >/dev/termination-log; } 2>/dev/null
    exit "$1"
}

fq_unmute() {
    [ "$fq_muted" = yes ] || return 0
    fq_muted=no
    exec >&8 2>&9 8>&- 9>&-
}

# Runs a hook in this shell, so that its exports take effect. In strict mode its first failure ends the container.
fq_hook() { # name of the field in spec.containers[].commands
    local fq_file=$fq_here/${fq_hooks:-hook}.$1.sh fq_result=0
    [ -s "$fq_file" ] || return 0
    fq_stage="commands.$1"
    if [ "$fq_strict" = yes ]; then
        set -eEu -o pipefail
    fi
    if [ "$fq_quiet" = yes ] && [ "$1" != post ]; then
        fq_muted=yes
        exec 8>&1 9>&2 >/dev/null 2>&1
    fi
    # shellcheck source=/dev/null
    . "$fq_file"
    fq_result=$?
    set +eEu +o pipefail
    fq_unmute
    fq_stage=
    [ "$fq_result" = 0 ] || fq_say "commands.$1 ended with code $fq_result; going on, as logging.strict is not set"
}

fq_on_exit() {
    local fq_result=$?
    fq_unmute
    [ -z "$fq_stage" ] || [ "$fq_result" = 0 ] || printf 'fluxqueue: %s failed with code %s\n' "$fq_stage" "$fq_result" >&2
}
trap fq_on_exit EXIT

# Microseconds, for differences.
fq_clock() {
    local fq_now=${EPOCHREALTIME:-$SECONDS.000000}
    printf '%s' "${fq_now//[!0-9]/}"
}

fq_took() { # since when, what: the line that logging.timed asks for
    local fq_centiseconds=$((($(fq_clock) - $1) / 10000))
    printf 'FLUXTIME %s wall time %d:%02d.%02d\n' "$2" $((fq_centiseconds / 6000)) $((fq_centiseconds / 100 % 60)) \
        $((fq_centiseconds % 100)) >&2
}

# Adds Flux and its Python modules to the paths, after those of the image, as the operator does.
fq_find_flux() {
    local fq_site
    # shellcheck source=/dev/null
    . "$fq_here/exports.sh"
    export FLUX_SHELL_RC_PATH=$fq_here${FLUX_SHELL_RC_PATH:+:$FLUX_SHELL_RC_PATH}
    [ "$fq_view" = yes ] || return 0
    export PATH=$PATH:$fq_mount/view/bin
    fq_site=$fq_python_path
    if [ -z "$fq_site" ]; then
        for fq_site in "$fq_mount"/view/lib/python3*/site-packages; do break; done
    fi
    export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$fq_site
    [ "$fq_fluxion" = no ] || fq_find_fluxion "$fq_mount/view"
}

# In a view Flux and Fluxion have separate trees, and Flux searches only its own. So it gets the path of Fluxion's modules, and the path of the
# files that load them: a folder with rc1.d, or one with modprobe.d if Flux starts by flux-modprobe.
fq_find_fluxion() { # view
    export FLUX_MODULE_PATH_PREPEND=$1/lib/flux/modules:$1/lib64/flux/modules${FLUX_MODULE_PATH_PREPEND:+:$FLUX_MODULE_PATH_PREPEND}
    export FLUX_RC_EXTRA=$1/etc/flux${FLUX_RC_EXTRA:+:$FLUX_RC_EXTRA}
    export FLUX_MODPROBE_PATH_APPEND=${FLUX_MODPROBE_PATH_APPEND:+$FLUX_MODPROBE_PATH_APPEND:}$1/etc/flux/modprobe
}

fq_need_flux() {
    command -v flux >/dev/null 2>&1 || fq_die 127 "there is no flux on the PATH: leave flux.container.disable unset, or use an image with Flux"
}

fq_within() { # seconds, command...
    if command -v timeout >/dev/null 2>&1; then
        timeout "$@"
    else
        "${@:2}"
    fi
}

# SIGTERM stops a container cleanly: it is passed on to the process that fq_attend waits for.
fq_child=
fq_ended=no   # a signal has arrived
fq_told=no    # it was passed on
fq_trapped=no # it interrupted `wait`
fq_code=0

# Runs before the signal is passed on; run.sh and broker.sh replace it.
# shellcheck disable=SC2329 # by the trap
fq_leave() {
    :
}

# shellcheck disable=SC2329 # by the trap
fq_on_signal() { # name of the signal that is passed on
    fq_trapped=yes
    [ "$fq_ended" = no ] || return 0
    fq_ended=yes
    [ -z "$fq_child" ] || fq_leave
    [ -z "$fq_child" ] || fq_tell "$1"
}

fq_tell() { # name of the signal
    kill "-$1" "$fq_child" 2>/dev/null && fq_told=yes
}

fq_mind_signals() {
    trap 'fq_on_signal TERM' TERM INT
}

# An interrupted `wait` returns the number of the signal, so the process is waited for again; 127 is a process whose code is known already.
fq_attend() { # command...
    local fq_again_code
    "$@" <&0 &
    fq_child=$!
    [ "$fq_ended" = no ] || fq_tell TERM
    wait "$fq_child"
    fq_code=$?
    while [ "$fq_trapped" = yes ] || kill -0 "$fq_child" 2>/dev/null; do
        fq_trapped=no
        wait "$fq_child" 2>/dev/null
        fq_again_code=$?
        [ "$fq_again_code" = 127 ] || fq_code=$fq_again_code
    done
    fq_child=
}
