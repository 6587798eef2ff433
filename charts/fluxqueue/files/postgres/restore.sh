#!/bin/sh
# Replaces what the queue's database has by a dump of BACKUPS: the one that DUMP names, or the newest. It does all of it or nothing.
# No queue may run: it would go on with what it remembers.
set -eu
umask 077
cd "$BACKUPS"
exec 9>.lock
flock 9
if [ -z "${DUMP:-}" ]; then
  for DUMP in fluxqueue-*.dump; do :; done
fi
[ -f "$DUMP" ] || {
  echo "restore.sh: there is no dump $DUMP" >&2
  exit 1
}
others=$(psql -X -At -v ON_ERROR_STOP=1 -c 'SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()')
[ "$others" = 0 ] || {
  echo "restore.sh: $others sessions use the database: scale the queue's Deployment to 0 and wait until its pods are gone" >&2
  exit 1
}
script=restore.sql.unfinished
trap 'rm -f "$script"' EXIT
pg_restore --no-owner --no-privileges --file="$script" "$DUMP"
psql -X -q -v ON_ERROR_STOP=1 --single-transaction -o /dev/null \
  -c 'DROP SCHEMA IF EXISTS fluxqueue, procrastinate CASCADE' -f "$script"
echo "restore.sh: restored $DUMP"
