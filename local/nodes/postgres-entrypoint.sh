#!/usr/bin/env bash
# What the stock image's entry point does with an empty PGDATA, for a user that is not root: it makes the cluster from POSTGRES_USER,
# POSTGRES_PASSWORD, POSTGRES_DB and POSTGRES_INITDB_ARGS (each also as NAME_FILE), runs what lies in /docker-entrypoint-initdb.d with a
# server that listens on the socket only, and then starts the server.
set -euo pipefail
[ "${1:0:1}" != - ] || set -- postgres "$@"
[ "$1" = postgres ] || exec "$@"
for name in POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB POSTGRES_INITDB_ARGS; do
  file=${name}_FILE
  [ -z "${!file:-}" ] || export "$name=$(<"${!file}")"
done
: "${POSTGRES_USER:=postgres}" "${POSTGRES_DB:=$POSTGRES_USER}"
export POSTGRES_USER POSTGRES_DB
mkdir -p "$PGDATA" /var/run/postgresql
chmod 700 "$PGDATA" || true
chmod 3775 /var/run/postgresql 2>/dev/null || true
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  [ -n "${POSTGRES_PASSWORD:-}" ] || { echo "POSTGRES_PASSWORD is not set" >&2; exit 1; }
  eval 'initdb --username="$POSTGRES_USER" --pwfile=<(printf "%s\n" "$POSTGRES_PASSWORD") '"${POSTGRES_INITDB_ARGS:-}"
  printf '\nhost all all all %s\n' "$(postgres -C password_encryption "${@:2}")" >>"$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "$(printf '%q ' "${@:2}") -c listen_addresses='' -p ${PGPORT:-5432}" -w start
  query=(psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$POSTGRES_USER")
  [ "$POSTGRES_DB" = postgres ] || "${query[@]}" --dbname postgres --set db="$POSTGRES_DB" <<<'CREATE DATABASE :"db";'
  for file in /docker-entrypoint-initdb.d/*; do
    # shellcheck disable=SC1090  # a file of the chart's
    case $file in
      *.sh) if [ -x "$file" ]; then "$file"; else . "$file"; fi ;;
      *.sql) "${query[@]}" --dbname "$POSTGRES_DB" -f "$file" ;;
    esac
  done
  pg_ctl -D "$PGDATA" -m fast -w stop
  unset PGPASSWORD
fi
exec "$@"
