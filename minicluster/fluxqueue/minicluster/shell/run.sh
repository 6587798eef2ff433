#!/bin/bash
# Runs in place of the application's command on every pod of a MiniCluster: starts this pod's Flux broker and, on index 0, the application
# in it. Words after this script's name are further words of the command.
#
# Ends with the application's exit code on the leader; with 0 on a follower whose leader has ended; and with 213 where a broker was lost
# and another one may take its place.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

# shellcheck source=SCRIPTDIR/environment.sh
. "${BASH_SOURCE[0]%/*}/environment.sh"

fq_replace() { # file, mode; content from standard input: never half a file, never another mode
    local fq_partial=$1.$$
    if ! { (umask 077 && cat >"$fq_partial") && chmod "$2" "$fq_partial" && mv -f "$fq_partial" "$1"; }; then
        fq_die "$fq_again" "$1 cannot be written: is $fq_mount writable for user $(id -u)?"
    fi
}

# The directories and files of this broker, made anew at every start: nothing is appended, so a restart changes nothing.
fq_prepare() {
    mkdir -p "$fq_rundir" "$fq_config/var/lib/flux" "$fq_config/etc/flux/config" "$fq_config/curve" "$fq_logs" ||
        fq_die "$fq_again" "$fq_config cannot be made: is $fq_mount writable for user $(id -u)?"
    chmod 700 "$fq_config/curve"
    # A mounted Secret belongs to root, and fsGroup would add group read, which Flux refuses: so a copy that is the broker's own.
    fq_replace "$fq_config/curve/curve.cert" 600 <"$fq_secret/curve.cert"
    fq_replace "$fq_config/etc/flux/config/broker.toml" 644 <"$fq_here/broker.toml"
    {
        printf '#!/bin/bash\n# The environment of this Flux instance: source it.\n'
        printf 'export %s=%q\n' PATH "$PATH" PYTHONPATH "${PYTHONPATH:-}" FLUX_SHELL_RC_PATH "$FLUX_SHELL_RC_PATH"
        printf 'export LD_LIBRARY_PATH=%q\n' "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$fq_mount/view/lib"
        printf 'export fluxsocket=%q\nexport FLUX_URI=%q\n' "$fq_uri" "$fq_uri"
        cat "$fq_here/exports.sh"
    } | fq_replace "$fq_mount/flux-view.sh" 755
    # shellcheck disable=SC2016 # expanded when that file runs
    printf '#!/bin/bash\n. %q\nexec flux proxy "$fluxsocket" bash\n' "$fq_mount/flux-view.sh" | fq_replace "$fq_mount/flux-connect.sh" 755
    case ${HOME:-/} in
    /) mkdir -p "$fq_config/home" && export HOME=$fq_config/home ;;
    esac
}

fq_leader_answers() {
    # shellcheck disable=SC2016 # by the inner shell
    timeout 2 /bin/bash -c 'exec 3<>"/dev/tcp/$1/$2"' probe "$fq_leader" "$fq_port" 2>/dev/null
}

# A broker whose first attempt to connect is lost waits for a whole time-out, and goes on trying the address it had looked up. So it is
# started when the leader answers, looked up anew each time. Where this shell cannot ask, the broker tries by itself.
fq_await_leader() {
    local fq_until=$((SECONDS + fq_patience))
    command -v timeout >/dev/null 2>&1 || return 0
    case $( (LC_ALL=C; exec 3<>/dev/tcp/127.0.0.1/1) 2>&1) in
    *"No such file"*) return 0 ;;
    esac
    until fq_leader_answers; do
        [ "$fq_ended" = no ] && [ "$SECONDS" -lt "$fq_until" ] || return 1
        sleep 0.2
    done
}

fq_lead() {
    local fq_began fq_restore
    fq_hook brokerPre
    fq_need_flux
    for fq_restore in "${fq_restores[@]}"; do
        [ ! -s "$fq_restore" ] || fq_options+=("-Scontent.restore=$fq_restore")
    done
    # What is submitted from beside this container shall find what is submitted in it finds.
    [ "$fq_serves" = no ] || env -0 | fq_replace "$fq_config/environment" 600
    [ -z "$fq_dump" ] || fq_options+=("-Scontent.dump=${fq_dump%/*}/.new-${fq_dump##*/}")
    fq_began=$(fq_clock)
    if [ "$fq_mode" = idle ]; then
        fq_say "rank 0 of $fq_size: an instance without a program, until 'flux shutdown'"
        fq_attend flux broker "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}"
    else
        fq_say "rank 0 of $fq_size: starting ($fq_mode)"
        fq_attend flux start "${fq_wrap[@]}" "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}" \
            /bin/bash "$fq_here/job.sh" "$@"
    fi
    [ "$fq_timed" = no ] || fq_took "$fq_began" fluxstart
    fq_keep_dump
    [ "$fq_ended" = no ] || fq_die "$fq_again" "the leader was asked to stop; the instance has been shut down"
    fq_say "the instance has ended with code $fq_code"
}

# A dump takes its place only when it is whole.
fq_keep_dump() {
    local fq_new=${fq_dump%/*}/.new-${fq_dump##*/}
    [ -n "$fq_dump" ] && [ -s "$fq_new" ] || return 0
    case $fq_new in
    *gz) gzip -t "$fq_new" 2>/dev/null || {
        fq_say "the dump of this instance is not whole; the one before it is kept"
        return 0
    } ;;
    esac
    mv -f "$fq_new" "$fq_dump"
}

# Whatever this rank was drained for went with the pod that had it: once the broker of a new one has joined, it takes work.
fq_return() {
    local fq_until=$((SECONDS + fq_patience))
    export FLUX_URI=$fq_uri
    until flux ping --count=1 0; do
        [ "$SECONDS" -lt "$fq_until" ] && kill -0 $$ || return 0
        sleep 1
    done
    flux resource undrain "$fq_rank"
}

# A follower that is to go, as the highest ranks do of a cluster that is made smaller: its rank takes no more work, and what runs there may
# end, as long as the pod is given time. Where the whole instance ends its broker does so by itself, and nothing is waited for.
# shellcheck disable=SC2329 # by fq_leave
fq_take_leave() {
    local fq_until=$((SECONDS + fq_grace))
    FLUX_URI=$fq_uri timeout 5 flux resource drain "$fq_rank" "its pod is being stopped" >/dev/null 2>&1 || return 0
    while [ "$SECONDS" -lt "$fq_until" ] && kill -0 "$fq_child" 2>/dev/null; do
        [ -n "$(FLUX_URI=$fq_uri timeout 5 flux jobs --no-header --filter=running "--include=$fq_rank" '--format={id}' 2>/dev/null)" ] ||
            return 0
        sleep 0.5
    done
}

# A follower's broker ends with 0 when its leader shut the instance down. Anything else is a lost connection, if it had one: the leader may
# come back in another pod. A broker that never stays up has another trouble, which trying again does not mend.
fq_follow() {
    local fq_began fq_short=0 fq_returns=no
    # shellcheck disable=SC2329 # by the trap
    fq_leave() { fq_take_leave; }
    fq_hook workerPre
    fq_need_flux
    while :; do
        fq_await_leader || [ "$fq_ended" = yes ] || fq_say "$fq_leader has not answered for $fq_patience s; the broker goes on by itself"
        [ "$fq_ended" = no ] || fq_die "$fq_again" "rank $fq_rank was asked to stop"
        fq_began=$SECONDS
        fq_say "rank $fq_rank of $fq_size: starting"
        if [ "$fq_returns" = no ]; then
            fq_returns=yes
            fq_return >/dev/null 2>&1 &
        fi
        fq_attend flux start "${fq_wrap[@]}" "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}"
        [ "$fq_ended" = no ] || fq_die "$fq_again" "rank $fq_rank was asked to stop"
        if [ "$fq_code" = 0 ] || [ "$fq_complete_workers" = yes ]; then
            fq_say "rank $fq_rank: the instance has ended"
            fq_code=0
            return
        fi
        fq_say "rank $fq_rank: the broker ended with code $fq_code"
        if [ $((SECONDS - fq_began)) -lt 5 ]; then
            fq_short=$((fq_short + 1))
        else
            fq_short=0
        fi
        [ "$fq_short" -lt 3 ] || fq_die "$fq_again" "rank $fq_rank: the broker ends at once, last with code $fq_code; see what it wrote above"
        fq_await_leader || fq_die "$fq_again" "rank $fq_rank: the leader $fq_leader is gone"
    done
}

fq_mind_signals
fq_hook init
fq_find_flux
fq_prepare
fq_hook pre
if [ "$fq_rank" = 0 ] && [ "$fq_leads" = yes ]; then
    fq_lead "$@"
else
    fq_follow
fi
fq_hook post
exit "$fq_code"
