#!/bin/bash
# The first process of the container that runs Flux, in place of the application's command: it runs broker.sh, with further words of the
# command, and passes a signal on to it.
#
# A container that has not ended after its grace period is killed by the kubelet, with a code that fails the Job. So broker.sh is killed before
# that, whatever it waits for (a hook, a broker, a file system), and the container ends with 213: another one may replace it.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

fq_early=no
trap 'fq_early=yes' TERM INT

# shellcheck source=SCRIPTDIR/environment.sh
. "${BASH_SOURCE[0]%/*}/environment.sh"

fq_timer=

# shellcheck disable=SC2329 # by the trap
fq_leave() {
    (
        trap 'kill "$!"' TERM
        sleep $((fq_grace + fq_ending_s)) &
        wait "$!" && kill -KILL "$fq_child"
    ) >/dev/null 2>&1 &
    fq_timer=$!
}

fq_mind_signals
[ "$fq_early" = no ] || fq_die "$fq_again" "rank $fq_rank was asked to stop before its broker started"
fq_attend /bin/bash "$fq_here/broker.sh" "$@"
[ -z "$fq_timer" ] || kill "$fq_timer" 2>/dev/null
case $fq_told/$fq_code in
yes/137 | yes/143) fq_die "$fq_again" "rank $fq_rank was asked to stop, and its processes were ended" ;;
esac
exit "$fq_code"
