#!/bin/sh
# Runs in the view's container: copies Flux to where the application's container finds it. It runs once: a restarted container finds the
# copy, and one that was stopped halfway starts a new copy.
set -eu
mount=$1
software=$2
images=${3:-/opt}
child=

# The sentence is also the message of the container in the pod's status.
say() {
    printf 'fluxqueue: %s\n' "$1" >&2
    { printf '%s' "$1" >/dev/termination-log; } 2>/dev/null || :
}

# shellcheck disable=SC2329 # by the trap
on_exit() {
    code=$?
    [ "$code" = 0 ] || [ "$code" = 143 ] ||
        say "the view cannot be copied (code $code): has $mount space, and is it writable for user $(id -u)? What failed is in the log."
}

# shellcheck disable=SC2329 # by the trap
on_signal() {
    [ -z "$child" ] || kill "$child" 2>/dev/null || :
    exit 143
}
trap on_exit EXIT
trap on_signal TERM INT

# A shell that is the first process of a container has to end its command itself, and does so at once only while it waits.
attend() {
    "$@" &
    child=$!
    wait "$child"
    child=
}

# Removes a copy that was stopped halfway. Folders of an installation may be read-only, also for their owner.
remove() {
    [ -e "$1" ] || [ -L "$1" ] || return 0
    attend chmod -R u+rwX "$1"
    attend rm -rf "$1"
}

# Copies the entries of a folder, not the folder: `cp -a` sets mode and time of its target, and the folder of a volume is root's.
copy_entries() { # from, to
    for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then
            [ "$again" = no ] || remove "$2/${entry##*/}"
            attend cp -a "$entry" "$2/"
        fi
    done
}

[ ! -e "$mount/flux-operator-done.txt" ] || exit 0

# Images of views have the view under /opt/views/._view with a generated name; /opt/view is a link to it.
view=$images/view
for found in "$images"/views/._view/*; do
    [ ! -d "$found" ] || view=$found
done
if [ ! -d "$view" ]; then
    trap - EXIT
    say "this image has no Flux under $images/views/._view or $images/view: set spec.flux.container.image to a flux-view image"
    exit 1
fi
again=no
[ ! -e "$mount/.view" ] || again=yes
remove "$mount/.view"
mkdir "$mount/.view"
copy_entries "$view" "$mount/.view"
# The view links to files under /opt/software; the application's container mounts this volume there.
[ ! -d "$images/software" ] || copy_entries "$images/software" "$software"
remove "$mount/view"
mv "$mount/.view" "$mount/view"
ln -sfn /opt/software "$mount/software"
touch "$mount/flux-operator-done.txt"
