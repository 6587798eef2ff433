#!/bin/sh
# Writes a dump into BACKUPS and keeps the newest KEEP of them. libpq's variables name the database.
# A dump has its name only when it is complete and was read back; one that was interrupted is removed by the next.
set -eu
umask 077
cd "$BACKUPS"
exec 9>.lock
flock 9 # another backup may run; the Job's deadline ends the wait
rm -f -- *.unfinished
name=fluxqueue-$(date -u +%Y%m%dT%H%M%SZ).dump
pg_dump --format=custom --lock-wait-timeout=60s --file="$name.unfinished"
pg_restore --list "$name.unfinished" | grep -q 'TABLE DATA fluxqueue ' || {
  echo "backup.sh: the dump has no table of the queue" >&2
  exit 1
}
sync
mv "$name.unfinished" "$name"
set -- fluxqueue-*.dump # in the order of their names, which is that of their times
while [ $# -gt "$KEEP" ]; do
  rm -f -- "$1"
  shift
done
echo "backup.sh: $name, $(wc -c <"$name") bytes; $# kept"
