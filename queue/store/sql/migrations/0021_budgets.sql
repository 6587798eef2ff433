-- What accounts used, by the days (UTC) on which they used it: in amount-seconds of each resource type of the graph, and of nodes. The
-- transaction that frees an allocation adds to it, whichever statement that is: budgets are exact after a crash at any point.
CREATE TABLE fluxqueue.account_day (
    account text NOT NULL CHECK (account <> ''),
    day     date NOT NULL,
    type    text NOT NULL,
    use     double precision NOT NULL,
    PRIMARY KEY (account, day, type)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX account_day_day ON fluxqueue.account_day (day);

-- The days of a time, each with its seconds.
CREATE FUNCTION fluxqueue.days_between(p_begin timestamptz, p_end timestamptz) RETURNS TABLE (day date, seconds double precision)
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT d::date, EXTRACT(epoch FROM LEAST(p_end AT TIME ZONE 'UTC', d + interval '1 day') - GREATEST(p_begin AT TIME ZONE 'UTC', d))::double precision
      FROM generate_series(date_trunc('day', p_begin AT TIME ZONE 'UTC'), p_end AT TIME ZONE 'UTC', interval '1 day') AS d
     WHERE p_end > p_begin AND d < p_end AT TIME ZONE 'UTC'
$$;

-- What an allocation has of each type; each of its nodes counts one.
CREATE FUNCTION fluxqueue.amounts_and_nodes(p_shares jsonb) RETURNS TABLE (type text, amount double precision)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 'node', jsonb_array_length(p_shares)::double precision
    UNION ALL
    SELECT a.key, sum(a.value::double precision)
      FROM jsonb_array_elements(p_shares) AS share, jsonb_each_text(share -> 'amounts') AS a
     GROUP BY a.key
$$;

-- An allocation is charged when it is freed, and when other work takes it over: its time begins again then.
CREATE FUNCTION fluxqueue.charge_days() RETURNS trigger
    LANGUAGE plpgsql
AS $$
BEGIN
    -- Most updates free nothing of an account, and this is found out at a tenth of the cost.
    IF NOT EXISTS (SELECT FROM after n
                     JOIN before b USING (jobid)
                     JOIN fluxqueue.workload w ON w.id = b.workload AND w.account <> ''
                    WHERE b.freed_at IS NULL AND (n.freed_at IS NOT NULL OR n.granted_at > b.granted_at)) THEN
        RETURN NULL;
    END IF;
    INSERT INTO fluxqueue.account_day (account, day, type, use)
    SELECT w.account, d.day, a.type, sum(a.amount * d.seconds)
      FROM before b
      JOIN after n ON n.jobid = b.jobid AND (n.freed_at IS NOT NULL OR n.granted_at > b.granted_at)
      JOIN fluxqueue.workload w ON w.id = b.workload AND w.account <> ''
     CROSS JOIN LATERAL fluxqueue.days_between(b.granted_at, COALESCE(n.freed_at, n.granted_at)) AS d
     CROSS JOIN LATERAL fluxqueue.amounts_and_nodes(b.shares) AS a
     WHERE b.freed_at IS NULL
     GROUP BY w.account, d.day, a.type
     ORDER BY w.account, d.day, a.type
    ON CONFLICT (account, day, type) DO UPDATE SET use = account_day.use + EXCLUDED.use;
    RETURN NULL;
END
$$;

CREATE TRIGGER allocation_charge_days AFTER UPDATE ON fluxqueue.allocation
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION fluxqueue.charge_days();

-- What was freed before this version, as far as the records reach.
INSERT INTO fluxqueue.account_day (account, day, type, use)
SELECT held.account, d.day, held.type, sum(held.amount * d.seconds)
  FROM (SELECT w.account, a.granted_at, a.freed_at, x.type, x.amount
          FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
         CROSS JOIN LATERAL fluxqueue.amounts_and_nodes(a.shares) AS x
         WHERE a.freed_at IS NOT NULL AND w.account <> ''
        UNION ALL
        SELECT e.account, e.granted_at, e.freed_at, x.type, x.amount
          FROM fluxqueue.ended_allocation e
         CROSS JOIN LATERAL (
               SELECT 'node' AS type, e.nodes::double precision AS amount
               UNION ALL
               SELECT key, value::double precision FROM jsonb_each_text(e.amounts)) AS x
         WHERE e.account <> '' AND e.freed_at > fluxqueue.clock() - interval '800 days') AS held
 CROSS JOIN LATERAL fluxqueue.days_between(held.granted_at, held.freed_at) AS d
 GROUP BY held.account, d.day, held.type;
