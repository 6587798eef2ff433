-- For a database that an older chart made, with `fluxqueue` as its superuser: that one is renamed and locked, and a new `fluxqueue` owns what is
-- the queue's. It changes everything or nothing.
\getenv password QUEUE_PASSWORD
SELECT NOT rolsuper AS done FROM pg_roles WHERE rolname = 'fluxqueue' \gset
\if :done
  \quit
\endif
SELECT count(*) = 0 AS absent FROM pg_roles WHERE rolname = 'postgres' \gset
\if :absent
  CREATE ROLE postgres LOGIN SUPERUSER CREATEDB CREATEROLE REPLICATION BYPASSRLS;
\endif
\connect - postgres
BEGIN;
ALTER ROLE fluxqueue RENAME TO fluxqueue_initial;
ALTER ROLE fluxqueue_initial NOLOGIN PASSWORD NULL;
CREATE ROLE fluxqueue LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD :'password';
ALTER DATABASE fluxqueue OWNER TO fluxqueue;
REVOKE ALL ON DATABASE fluxqueue FROM PUBLIC;
CREATE TEMPORARY VIEW own AS
  SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema';
SELECT format('ALTER SCHEMA %I OWNER TO fluxqueue', own.nspname)
  FROM own JOIN pg_namespace n USING (oid) WHERE n.nspowner = 'fluxqueue_initial'::regrole
UNION ALL
-- Sequences of columns follow their tables; partitions do not follow theirs.
SELECT format('ALTER %s %I.%I OWNER TO fluxqueue',
    CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END, own.nspname, c.relname)
  FROM pg_class c JOIN own ON own.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'v', 'm') OR c.relkind = 'S' AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
      AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))
UNION ALL
SELECT format('ALTER ROUTINE %s OWNER TO fluxqueue', p.oid::regprocedure) FROM pg_proc p JOIN own ON own.oid = p.pronamespace
UNION ALL
-- Array types follow their elements, and those of rows their tables.
SELECT format('ALTER TYPE %s OWNER TO fluxqueue', t.oid::regtype)
  FROM pg_type t JOIN own ON own.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
  WHERE t.typtype IN ('d', 'e', 'r') OR (t.typtype = 'c' AND c.relkind = 'c')
\gexec
DROP VIEW own;
COMMIT;
