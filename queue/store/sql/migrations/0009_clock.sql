-- The one clock of the queue: Postgres' own, and ahead of it by as much as that was ever seen to step back.
ALTER TABLE fluxqueue.leader ADD COLUMN clock_ahead interval NOT NULL DEFAULT '0', ADD COLUMN clock_seen timestamptz;

CREATE FUNCTION fluxqueue.clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE
AS $$
    SELECT clock_timestamp() + COALESCE((SELECT max(clock_ahead) FROM fluxqueue.leader), interval '0')
$$;
