-- What an allocation costs an hour, from when on, by the prices that held when it was granted (docs/accounting.md): a list of since and
-- per_hour. NULL: no prices were stated, it is free, or a version before this one granted it.
ALTER TABLE fluxqueue.allocation ADD COLUMN rates jsonb;
ALTER TABLE fluxqueue.ended_allocation ADD COLUMN rates jsonb;

-- What several rates make between two times.
CREATE FUNCTION fluxqueue.cost_of_each(p_rates jsonb, p_begin timestamptz, p_end timestamptz) RETURNS numeric
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT COALESCE(sum(r.per_hour * EXTRACT(epoch FROM LEAST(r.until, p_end) - GREATEST(r.since, p_begin))), 0) / 3600
      FROM (SELECT since, lead(since, 1, 'infinity') OVER (ORDER BY since) AS until, per_hour
              FROM jsonb_to_recordset(p_rates) AS x (since timestamptz, per_hour numeric)) AS r
     WHERE LEAST(r.until, p_end) > GREATEST(r.since, p_begin)
$$;

-- What rates make between two times; NULL without rates. Most allocations have one rate: the expression for it becomes a part of the query,
-- which costs a small part of the function for several.
CREATE FUNCTION fluxqueue.cost_of(p_rates jsonb, p_begin timestamptz, p_end timestamptz) RETURNS numeric
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN jsonb_array_length(p_rates) = 1
                THEN (p_rates -> 0 ->> 'per_hour')::numeric * GREATEST(EXTRACT(epoch FROM p_end - p_begin), 0) / 3600
                ELSE fluxqueue.cost_of_each(p_rates, p_begin, p_end) END
$$;

-- Those of some rates that came to count by the end of an allocation: prices that were stated far ahead would be stored with all that ended
-- before, and make each report several times as expensive.
CREATE FUNCTION fluxqueue.rates_until(p_rates jsonb, p_end timestamptz) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN jsonb_array_length(p_rates) > 1 THEN
                (SELECT jsonb_agg(r.rate ORDER BY r.n)
                   FROM jsonb_array_elements(p_rates) WITH ORDINALITY AS r (rate, n)
                  WHERE r.n = 1 OR (r.rate ->> 'since')::timestamptz < p_end)
                ELSE p_rates END
$$;

-- The view of 0019, with rates and cost as its last columns.
CREATE OR REPLACE VIEW fluxqueue.allocations AS
SELECT a.jobid, a.workload, w.namespace, w.queue, a.granted_at, a.released_at, a.freed_at, jsonb_array_length(a.shares) AS nodes,
       fluxqueue.amounts_of(a.shares) AS amounts, w.account, w.submitted_by, a.rates,
       fluxqueue.cost_of(a.rates, a.granted_at, COALESCE(a.freed_at, now())) AS cost
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
UNION ALL
SELECT jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts, account, submitted_by, rates,
       fluxqueue.cost_of(rates, granted_at, freed_at)
  FROM fluxqueue.ended_allocation;
