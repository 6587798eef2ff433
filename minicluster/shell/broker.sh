#!/bin/bash
# Run by run.sh on every pod of a MiniCluster: starts this pod's Flux broker and, on index 0, the application in it. Arguments of this script
# are further words of the command.
#
# It ends with the application's exit code on the leader, with 0 on a follower whose instance has ended, with 213 if a broker was lost or
# stopped and another one may replace it, and with another code and a sentence if a replacement could do no better.
# shellcheck disable=SC2154 # settings.sh assigns every fq_ name that is not assigned here

# shellcheck source=SCRIPTDIR/environment.sh
. "${BASH_SOURCE[0]%/*}/environment.sh"

# In a pipeline only the subshell ends, so its callers end as well.
fq_replace() { # file, mode; content from standard input: never half a file, never another mode
    local fq_partial=$1.$$
    if ! { (umask 077 && cat >"$fq_partial") && chmod "$2" "$fq_partial" && mv -f "$fq_partial" "$1"; }; then
        rm -f "$fq_partial"
        fq_die "$fq_again" "$1 cannot be written: has $fq_mount space, and is it writable for user $(id -u)?"
    fi
}

# Another pod would have the same root file system, so a retry does not help.
fq_do_without_logs() {
    [ "$fq_mode" != batch ] ||
        fq_die 1 "the folder $fq_logs for the output of the batch cannot be made: set logs of the container to a folder of a volume"
    fq_say "$fq_logs cannot be made; only a batch needs it"
}

fq_need_tools() {
    local fq_tool
    for fq_tool in cat chmod env id mkdir mv rm sleep; do
        command -v "$fq_tool" >/dev/null 2>&1 || fq_die 127 "the image has no $fq_tool on its PATH: it needs bash and the coreutils of its system"
    done
}

# Creates the directories and files of this broker at every start. Nothing is appended, so a restart changes nothing.
fq_prepare() {
    mkdir -p "$fq_rundir" "$fq_config/var/lib/flux" "$fq_config/etc/flux/config" "$fq_config/curve" ||
        fq_die "$fq_again" "$fq_config cannot be made: has $fq_mount space, and is it writable for user $(id -u)?"
    mkdir -p "$fq_logs" || fq_do_without_logs
    rm -f "$fq_config/exit-code" "$fq_config/shut-down"
    chmod 700 "$fq_config/curve"
    # A mounted Secret belongs to root, and fsGroup would add group read, which Flux refuses. So the broker gets its own copy.
    [ -r "$fq_secret/curve.cert" ] || fq_die 1 "the certificate $fq_secret/curve.cert cannot be read by user $(id -u): leave its volume unchanged"
    fq_replace "$fq_config/curve/curve.cert" 600 <"$fq_secret/curve.cert"
    fq_replace "$fq_config/etc/flux/config/broker.toml" 644 <"$fq_here/broker.toml"
    {
        printf '#!/bin/bash\n# The environment of this Flux instance: source it.\n'
        printf 'export %s=%q\n' PATH "$PATH" PYTHONPATH "${PYTHONPATH:-}" FLUX_SHELL_RC_PATH "$FLUX_SHELL_RC_PATH"
        printf 'export LD_LIBRARY_PATH=%q\n' "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$fq_mount/view/lib"
        printf 'export fluxsocket=%q\nexport FLUX_URI=%q\n' "$fq_uri" "$fq_uri"
        cat "$fq_here/exports.sh"
    } | fq_replace "$fq_mount/flux-view.sh" 755 || exit "$fq_again"
    # shellcheck disable=SC2016 # expanded when that file runs
    printf '#!/bin/bash\n. %q\nexec flux proxy "$fluxsocket" bash\n' "$fq_mount/flux-view.sh" |
        fq_replace "$fq_mount/flux-connect.sh" 755 || exit "$fq_again"
    case ${HOME:-/} in
    /) mkdir -p "$fq_config/home" && export HOME=$fq_config/home ;;
    esac
}

fq_leader_answers() { # seconds
    # shellcheck disable=SC2016 # by the inner shell
    timeout "$1" /bin/bash -c 'exec 3<>"/dev/tcp/$1/$2"' probe "$fq_leader" "$fq_port" 2>/dev/null &
    wait "$!"
}

# A broker whose first connection attempt is lost waits for a whole time-out and then retries the address that it had resolved. So it is
# started when the leader responds, and the name is resolved again each time: a resolver may remember for 30 s that there is no such name.
# An attempt that a slow resolver uses up is longer the next time. If this shell cannot connect, the broker tries by itself.
fq_await_leader() {
    local fq_since=$SECONDS fq_attempt_s=2
    command -v timeout >/dev/null 2>&1 || return 0
    case $( (LC_ALL=C; exec 3<>/dev/tcp/127.0.0.1/1) 2>&1) in
    *"No such file"*) return 0 ;;
    esac
    until fq_leader_answers "$fq_attempt_s"; do
        [ "$?" -lt 124 ] || [ "$fq_attempt_s" -ge 8 ] || fq_attempt_s=$((fq_attempt_s * 2))
        [ "$fq_ended" = no ] && [ $((SECONDS - fq_since)) -lt "$fq_patience" ] || return 1
        if [ $((SECONDS - fq_since)) -lt 10 ]; then sleep 0.2; else sleep 1; fi
    done
}

# Prints the state of this pod's broker: join, init, quorum, run, cleanup, shutdown, finalize, goodbye or exit; nothing if it does not answer.
# shellcheck disable=SC2329 # by fq_leave
fq_state() {
    local fq_word
    read -r _ fq_word _ < <(FLUX_URI=$fq_uri fq_within "$fq_ask_s" flux uptime 2>/dev/null)
    printf '%s' "$fq_word"
}

# How long a question to the broker may take while the pod is being stopped.
fq_ask_s=$((fq_grace < 8 ? 1 : fq_grace < 20 ? 2 : 5))

fq_start() { # command...
    [ "$fq_ended" = no ] || fq_die "$fq_again" "rank $fq_rank was asked to stop before its broker started"
    fq_attend "$@"
}

# Waits, within the grace period, for a broker that is at its end already: a signal would stop that halfway.
# shellcheck disable=SC2329 # by fq_leave
fq_let_end() {
    while [ "$SECONDS" -lt "$fq_leave_until" ] && kill -0 "$fq_child" 2>/dev/null; do
        sleep 0.2
    done
}

# A leader that is asked to stop tells its followers that the instance goes on in another pod: otherwise they take it for its end. The exit code
# of a command that has ended stands, so that it does not run twice.
# shellcheck disable=SC2329 # by fq_leave
fq_hand_over() {
    fq_leave_until=$((SECONDS + fq_grace))
    [ ! -e "$fq_config/shut-down" ] || fq_let_end
    case $(fq_state) in
    quorum | run)
        # shellcheck disable=SC2016 # by the followers' shell
        FLUX_URI=$fq_uri fq_within "$fq_ask_s" flux exec --noinput --dir=/ --exclude=0 \
            /bin/bash -c ': >"$1"' mark "$fq_config/next-leader" </dev/null >/dev/null 2>&1
        ;;
    cleanup | shutdown | finalize | goodbye | exit) fq_let_end ;;
    esac
}

fq_lead() {
    local fq_began fq_restore
    # shellcheck disable=SC2329 # by the trap
    fq_leave() { fq_hand_over; }
    fq_hook brokerPre
    fq_need_flux
    for fq_restore in "${fq_restores[@]}"; do
        [ ! -s "$fq_restore" ] || fq_options+=("-Scontent.restore=$fq_restore")
    done
    # Jobs submitted by the REST service get the same environment as jobs submitted in this container.
    [ "$fq_serves" = no ] || env -0 | fq_replace "$fq_config/environment" 600 || exit "$fq_again"
    [ -z "$fq_dump" ] || fq_options+=("-Scontent.dump=${fq_dump%/*}/.new-${fq_dump##*/}")
    fq_began=$(fq_clock)
    if [ "$fq_mode" = idle ]; then
        fq_say "rank 0 of $fq_size: an instance without a program, until 'flux shutdown'"
        fq_start flux broker "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}"
    else
        fq_say "rank 0 of $fq_size: starting ($fq_mode)"
        fq_start flux start "${fq_wrap[@]}" "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}" \
            /bin/bash "$fq_here/job.sh" "$@"
    fi
    [ "$fq_timed" = no ] || fq_took "$fq_began" fluxstart
    fq_keep_dump
    fq_conclude
    fq_say "the instance has ended with code $fq_code"
}

# The code of an instance that was stopped is not that of its command. A session that is stopped goes on in another pod, also after its command.
fq_conclude() {
    local fq_kept=
    [ ! -s "$fq_config/exit-code" ] || fq_kept=$(<"$fq_config/exit-code")
    if [ "$fq_told" = yes ]; then
        [ -n "$fq_kept" ] && [ "$fq_mode" != session ] ||
            fq_die "$fq_again" "the leader was asked to stop; the instance has been shut down"
        fq_code=$fq_kept
    elif [ "$fq_mode" = session ] && [ -n "$fq_kept" ]; then
        fq_code=$fq_kept
    elif [ -e "$fq_config/shut-down" ]; then
        fq_say "the instance was shut down before its command ended"
    fi
}

# A dump replaces the former one only if it is complete.
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

# The reason why this rank was drained ended with its former pod: once the new broker has joined, the rank accepts work again.
fq_return() {
    local fq_until=$((SECONDS + fq_patience))
    export FLUX_URI=$fq_uri
    until flux ping --count=1 0; do
        [ "$SECONDS" -lt "$fq_until" ] && kill -0 $$ || return 0
        sleep 1
    done
    flux resource undrain "$fq_rank"
}

# A follower that has to leave, such as the highest ranks when a cluster shrinks: its rank accepts no more work, and its jobs may end within
# the grace period. If the whole instance ends, the broker ends by itself, and there is nothing to wait for.
# shellcheck disable=SC2329 # by fq_leave
fq_take_leave() {
    local fq_drained=no fq_silent=0
    fq_leave_until=$((SECONDS + fq_grace))
    while [ "$SECONDS" -lt "$fq_leave_until" ] && kill -0 "$fq_child" 2>/dev/null; do
        case $(fq_state) in
        run)
            if [ "$fq_drained" = no ]; then
                fq_drained=yes
                FLUX_URI=$fq_uri fq_within "$fq_ask_s" flux resource drain "$fq_rank" "its pod is being stopped" >/dev/null 2>&1
            fi
            [ -n "$(FLUX_URI=$fq_uri fq_within "$fq_ask_s" flux jobs --no-header --filter=running "--include=$fq_rank" '--format={id}' 2>/dev/null)" ] ||
                break
            ;;
        cleanup | shutdown | finalize | goodbye | exit) fq_let_end ;;
        "") # between two states, if it has a socket
            fq_silent=$((fq_silent + 1))
            [ -S "${fq_uri#local://}" ] && [ "$fq_silent" -lt 5 ] || break
            ;;
        *) break ;;
        esac
        sleep 0.5
    done
}

# A follower's broker ends with 0 if its leader shut the instance down: that is its end, unless the leader has marked that it goes on in another
# pod. Any other code is a lost connection, if it had one: the leader may return. A broker that ends at once has another problem, which more
# tries do not solve; names that appear late are not such a problem, and resolvers know them after 30 s.
fq_follow() {
    local fq_began fq_short=0 fq_first_short=0 fq_returns=no fq_next=$fq_config/next-leader
    # shellcheck disable=SC2329 # by the trap
    fq_leave() { fq_take_leave; }
    fq_hook workerPre
    fq_need_flux
    while :; do
        fq_await_leader || [ "$fq_ended" = yes ] || fq_say "$fq_leader has not answered for $fq_patience s; the broker goes on by itself"
        fq_began=$SECONDS
        rm -f "$fq_next"
        fq_say "rank $fq_rank of $fq_size: starting"
        if [ "$fq_returns" = no ] && [ "$fq_ended" = no ]; then
            fq_returns=yes
            fq_return >/dev/null 2>&1 &
        fi
        fq_start flux start "${fq_wrap[@]}" "--config-path=$fq_config/etc/flux/config" "${fq_options[@]}"
        if [ "$fq_ended" = yes ] && { [ "$fq_told" = yes ] || [ "$fq_code" != 0 ] || [ -e "$fq_next" ]; }; then
            fq_die "$fq_again" "rank $fq_rank was asked to stop"
        fi
        if [ "$fq_complete_workers" = yes ] || { [ "$fq_code" = 0 ] && [ ! -e "$fq_next" ]; }; then
            fq_say "rank $fq_rank: the instance has ended"
            fq_code=0
            return
        fi
        if [ -e "$fq_next" ]; then
            fq_say "rank $fq_rank: the instance goes on with its next leader"
            fq_short=0
        else
            fq_say "rank $fq_rank: the broker ended with code $fq_code"
            fq_count_short
        fi
        sleep 1
        fq_await_leader || fq_die "$fq_again" "rank $fq_rank: the leader $fq_leader is gone"
    done
}

# Ends this pod if three brokers in a row ended at once, and the first of them so long ago that a name would be known now.
fq_count_short() {
    if [ $((SECONDS - fq_began)) -ge 5 ]; then
        fq_short=0
        return
    fi
    [ "$fq_short" != 0 ] || fq_first_short=$SECONDS
    fq_short=$((fq_short + 1))
    if [ "$fq_short" -ge 3 ] && [ $((SECONDS - fq_first_short)) -ge "$fq_names_s" ]; then
        fq_die "$fq_again" "rank $fq_rank: the broker ends at once, last with code $fq_code; see what it wrote above"
    fi
}

fq_mind_signals
fq_need_tools
fq_hook init
fq_find_flux
fq_prepare
fq_hook pre
fq_leave_until=0
if [ "$fq_rank" = 0 ] && [ "$fq_leads" = yes ]; then
    fq_lead "$@"
else
    fq_follow
fi
fq_hook post
exit "$fq_code"
