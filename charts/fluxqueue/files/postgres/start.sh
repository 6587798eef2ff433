#!/bin/sh
# Runs the server; at the first start it makes the database, with a role for the queue that is no superuser.
#
# The database is made in a folder of another name, which gets its own name when everything is in it: a start that was interrupted begins
# again. Until then, and while roles are changed, the server listens on a socket only. The server's settings are the arguments.
# In the environment: PGDATA, PGPORT, QUEUE_PASSWORD, TLS_CERTIFICATE (a file), SOCKETS (a folder, /var/run/postgresql).
set -eu
here=$(dirname "$0")
sockets=${SOCKETS:-/var/run/postgresql}
marker=$PGDATA.roles
export PGPORT

say() { echo "start.sh: $*" >&2; }

alone() { # FOLDER ROLE DATABASE SCRIPT: runs SQL while nobody else is admitted
  pg_ctl -D "$1" -w -t 86400 -o "-c listen_addresses='' -c ssl=off -c hba_file=$here/pg_hba.conf -c unix_socket_directories=$sockets" start >&2
  status=0
  psql -X -q -v ON_ERROR_STOP=1 -h "$sockets" -U "$2" -d "$3" -f "$here/$4" || status=$?
  pg_ctl -D "$1" -w -t 86400 -m fast stop >&2
  return $status
}

if [ -s "$PGDATA/PG_VERSION" ]; then
  made=$(cat "$PGDATA/PG_VERSION")
  have=$(postgres --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
  if [ "$made" != "$have" ]; then
    say "the volume holds a database of Postgres $made, and the image is Postgres $have: set postgres.image back to $made, or move the" \
      "database as docs/postgres.md says"
    exit 1
  fi
  if [ ! -e "$marker" ]; then
    say "an older chart made this database: the queue's role stops being a superuser"
    if alone "$PGDATA" fluxqueue fluxqueue take-over.sql; then
      touch "$marker"
    else
      say "the roles stay as they were, and the server runs; it is tried again at the next start"
    fi
  fi
else
  rm -rf "$PGDATA.unfinished"
  initdb -D "$PGDATA.unfinished" --username=postgres --auth-local=trust --auth-host=reject --encoding=UTF8 --locale=C.UTF-8 \
    --data-checksums --no-instructions >&2
  alone "$PGDATA.unfinished" postgres postgres own-role.sql
  touch "$marker"
  [ ! -d "$PGDATA" ] || rmdir "$PGDATA" || {
    say "$PGDATA has files and is no database, from a first start under an older chart that was interrupted: empty it"
    exit 1
  }
  mv "$PGDATA.unfinished" "$PGDATA"
fi

# A renewed certificate is read at a reload. The loop ends with the server, which has this process's number.
(
  seen=$(cksum <"$TLS_CERTIFICATE")
  while sleep "${TLS_CHECK_SECONDS:-20}" && kill -0 $$; do
    now=$(cksum <"$TLS_CERTIFICATE") || continue
    if [ "$now" != "$seen" ] && pg_ctl -D "$PGDATA" reload >&2; then seen=$now; fi
  done
) &
exec postgres -D "$PGDATA" -c "hba_file=$here/pg_hba.conf" -c "unix_socket_directories=$sockets" "$@"
