#!/bin/bash
# The initial program of a MiniCluster: runs on the leader, inside the Flux instance, and its exit code is the instance's.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

# shellcheck source=SCRIPTDIR/environment.sh
. "${BASH_SOURCE[0]%/*}/environment.sh"

fq_worst=0
fq_ids=()
fq_texts=()
fq_numbers=()

# Reports a failed line of a batch, and keeps the highest code.
fq_failed() { # number, text, code
    printf 'fluxqueue: line %s of the batch failed with code %s: %s\n' "$1" "$3" "$2" >&2
    [ "$3" -le "$fq_worst" ] || fq_worst=$3
}

# Submits a line of a batch; batch.sh calls it once for each.
fq_line() { # number as in the command, its text, then the words to submit
    local fq_number=$1 fq_text=$2 fq_id
    shift 2
    if fq_id=$(flux submit "${fq_flags[@]}" "--output=$fq_logs/job-$fq_number.out" "--error=$fq_logs/job-$fq_number.err" "$@"); then
        fq_numbers+=("$fq_number")
        fq_texts+=("$fq_text")
        fq_ids+=("$fq_id")
    else
        fq_failed "$fq_number" "$fq_text" "$?"
    fi
}

fq_batch() {
    local fq_at
    # shellcheck source=/dev/null
    . "$fq_here/batch.sh"
    for fq_at in "${!fq_ids[@]}"; do
        flux job status "${fq_ids[$fq_at]}" || fq_failed "${fq_numbers[$fq_at]}" "${fq_texts[$fq_at]} (see $fq_logs/job-${fq_numbers[$fq_at]}.err)" "$?"
    done
    [ "$fq_quiet" = yes ] || flux jobs -a
    return "$fq_worst"
}

# Runs lines of shell as written. A line that fails does not end the batch, but its code is kept; jobs that were submitted as waitable are
# waited for at the end.
fq_raw_batch() {
    # shellcheck disable=SC2329 # by the trap
    fq_report() {
        case ${BASH_SOURCE[1]} in
        */raw.sh) fq_failed "${BASH_LINENO[0]}" "$BASH_COMMAND" "$1" ;;
        esac
    }
    set -E
    trap 'fq_report "$?"' ERR
    # shellcheck source=/dev/null
    . "$fq_here/raw.sh"
    trap - ERR
    set +E
    flux job wait --all || fq_failed end "flux job wait --all" "$?"
    return "$fq_worst"
}

# A broker that shuts down ends this program by SIGHUP, and makes another code of the one that it then returns. So the code of a command that
# ended by itself is kept in a file, which broker.sh reads; and so is the fact that the instance is being shut down.
fq_keep() { # code
    [ "$fq_ended" = no ] || return 0
    printf '%s\n' "$1" >"$fq_config/exit-code" || fq_say "the exit code $1 of the command cannot be kept in $fq_config/exit-code"
}

# shellcheck disable=SC2329 # by the trap
fq_on_shutdown() {
    { : >"$fq_config/shut-down"; } 2>/dev/null
    fq_on_signal HUP
}

fq_run() {
    local fq_began fq_result
    fq_began=$(fq_clock)
    case $fq_mode in
    batch | raw) "$@" ;;
    *)
        fq_mind_signals
        trap fq_on_shutdown HUP
        fq_attend "$@"
        (exit "$fq_code")
        ;;
    esac
    fq_result=$?
    fq_keep "$fq_result"
    [ "$fq_timed" = no ] || fq_took "$fq_began" fluxsubmit
    return "$fq_result"
}

# A session continues after its command until it is shut down.
fq_stay() { # code
    fq_say "the command ended with code $1; the instance stays, until 'flux shutdown'"
    while [ "$fq_ended" = no ]; do
        fq_attend sleep 3600
    done
    return "$1"
}

case $fq_mode in
single) fq_run "${fq_prefix[@]}" "${fq_submit[@]}" "${fq_command[@]}" "$@" ;;
launcher) fq_run "${fq_prefix[@]}" "${fq_command[@]}" "$@" ;;
batch) fq_run fq_batch ;;
raw) fq_run fq_raw_batch ;;
session)
    fq_run "${fq_prefix[@]}" "${fq_submit[@]}" "${fq_command[@]}" "$@"
    fq_result=$?
    [ "$fq_ended" = yes ] || fq_stay "$fq_result"
    exit "$fq_result"
    ;;
*) fq_die 2 "settings.sh says mode '$fq_mode', which this script does not know" ;;
esac
