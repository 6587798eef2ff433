#!/bin/sh
# Runs in the view's container: puts Flux where the application's container finds it. Once: a container that is started again finds the
# work done, and one that was stopped in the middle begins anew beside what it left.
set -eu
mount=$1
software=$2
[ ! -e "$mount/flux-operator-done.txt" ] || exit 0

# Images of views keep theirs under /opt/views/._view with a name of its own; /opt/view is a link to it.
view=/opt/view
for found in "${3:-/opt}"/views/._view/*; do
    [ ! -d "$found" ] || view=$found
done
rm -rf "$mount/.view"
cp -a "$view/." "$mount/.view"
# What the view links to has paths of its own; the application's container has this volume at /opt/software.
if [ -d "${3:-/opt}/software" ]; then
    cp -a "${3:-/opt}/software/." "$software/"
fi
rm -rf "$mount/view"
mv "$mount/.view" "$mount/view"
ln -sfn /opt/software "$mount/software"
touch "$mount/flux-operator-done.txt"
