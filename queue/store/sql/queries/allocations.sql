-- next_jobids --
SELECT nextval('fluxqueue.jobid') AS jobid FROM generate_series(1, %(n)s);

-- skip_jobids --
-- A sequence does not belong to the transaction; the statement still comes after its fence.
-- The tables are older than an object: others that were released just before that have no FluxJob, and their ids are not known.
SELECT setval('fluxqueue.jobid', %(last)s + 10000) FROM fluxqueue.jobid WHERE last_value < %(last)s;

-- grant --
-- After lock_workloads. No CTE is joined with another: Postgres expects few rows of each, and would compare all with
-- all. The last part is for repetitions: such a grant is stored already, and has no allocated_at here.
WITH now AS (
    SELECT %(now)s::timestamptz AS at
), wanted AS (
    SELECT *
      FROM unnest(%(jobids)s::bigint[], %(workloads)s::bigint[], %(shares)s::jsonb[], %(starts)s::timestamptz[],
                  %(ends)s::timestamptz[], %(hosts)s::text[], %(generations)s::bigint[],
                  %(promises)s::timestamptz[], %(rates)s::jsonb[])
           AS g (jobid, workload, shares, starts_at, ends_at, hosts, generation, promised_at, rates)
), target AS (
    SELECT g.*
      FROM wanted g JOIN fluxqueue.workload w ON w.id = g.workload
     WHERE w.state = 'Pending'
       AND (g.generation IS NULL OR g.generation = w.generation)
       AND NOT EXISTS (SELECT FROM fluxqueue.allocation a WHERE a.jobid = g.jobid)
), stored AS (
    INSERT INTO fluxqueue.allocation (jobid, workload, shares, granted_at, starts_at, ends_at, next_release_at, release_attempts, rates)
    SELECT jobid, workload, shares, (SELECT at FROM now), starts_at, ends_at,
           (SELECT at FROM now) + make_interval(secs => %(claimed_s)s), CASE WHEN %(claimed_s)s > 0 THEN 1 ELSE 0 END, rates
      FROM target
), slots AS (
    INSERT INTO fluxqueue.slot (jobid, rank, node, state)
    SELECT s.jobid, s.rank, s.node, CASE WHEN s.node = %(no_node)s THEN 'ended' ELSE 'free' END
      FROM unnest(%(slot_jobids)s::bigint[], %(slot_ranks)s::integer[], %(slot_nodes)s::text[]) AS s (jobid, rank, node)
      JOIN target USING (jobid)
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Allocated', reason = '', message = '', jobid = t.jobid, hosts = t.hosts,
           allocated_at = (SELECT at FROM now),
           promised_at = COALESCE(w.promised_at, t.promised_at, (SELECT r.first_at FROM fluxqueue.reservation r WHERE r.workload = w.id))
      FROM target t
     WHERE w.id = t.workload
    RETURNING w.jobid, w.allocated_at, w.promised_at
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT workload, (SELECT at FROM now), 'Pending', 'Allocated', '', 'job ' || jobid, %(epoch)s FROM target
), unreserved AS (
    DELETE FROM fluxqueue.reservation r USING target t WHERE r.workload = t.workload
)
SELECT jobid, allocated_at, promised_at FROM moved
UNION ALL
SELECT a.jobid, NULL, NULL
  FROM wanted g JOIN fluxqueue.allocation a USING (jobid, workload)
 WHERE a.freed_at IS NULL
 ORDER BY jobid;

-- claim_releases --
WITH due AS (
    -- The state is read row by row: with a join, Postgres expects few Allocated ones among the due and reads all live workloads.
    SELECT a.jobid
      FROM fluxqueue.allocation a
     WHERE a.next_release_at <= %(now)s::timestamptz AND a.kind = 'grant'
       AND (SELECT w.state FROM fluxqueue.workload w WHERE w.id = a.workload) = 'Allocated'
     ORDER BY a.next_release_at
     LIMIT %(limit)s
       FOR UPDATE OF a SKIP LOCKED
), claimed AS (
    UPDATE fluxqueue.allocation a
       SET next_release_at = %(now)s::timestamptz + make_interval(secs => %(retry_after_s)s),
           release_attempts = a.release_attempts + 1
      FROM due
     WHERE a.jobid = due.jobid
    RETURNING a.*
)
SELECT w.*, c.jobid AS a_jobid, c.kind AS a_kind, c.workload AS a_workload, c.shares AS a_shares, c.granted_at AS a_granted_at,
       c.starts_at AS a_starts_at, c.ends_at AS a_ends_at, c.released_at AS a_released_at, c.freed_at AS a_freed_at,
       c.release_attempts AS a_release_attempts, p.ranks, p.nodes, p.states, p.pod_uids, p.pod_names
  FROM claimed c
  JOIN fluxqueue.workload w ON w.id = c.workload
  CROSS JOIN LATERAL (
      SELECT array_agg(s.rank ORDER BY s.rank) AS ranks, array_agg(s.node ORDER BY s.rank) AS nodes,
             array_agg(s.state ORDER BY s.rank) AS states, array_agg(s.pod_uid ORDER BY s.rank) AS pod_uids,
             array_agg(s.pod_name ORDER BY s.rank) AS pod_names
        FROM fluxqueue.slot s
       WHERE s.jobid = c.jobid) p
 ORDER BY c.granted_at, c.jobid;

-- next_release_at --
SELECT min(a.next_release_at) AS at
  FROM fluxqueue.allocation a
 WHERE a.next_release_at IS NOT NULL AND a.kind = 'grant'
   AND (SELECT w.state FROM fluxqueue.workload w WHERE w.id = a.workload) = 'Allocated';

-- void_claims --
UPDATE fluxqueue.allocation
   SET next_release_at = %(now)s::timestamptz
 WHERE next_release_at > %(now)s::timestamptz
RETURNING jobid;

-- mark_released --
WITH target AS (
    UPDATE fluxqueue.allocation
       SET released_at = %(now)s::timestamptz, next_release_at = NULL, release_error = ''
     WHERE jobid = ANY (%(jobids)s::bigint[]) AND released_at IS NULL AND freed_at IS NULL
    RETURNING jobid, workload, released_at
), recovered AS (
    UPDATE fluxqueue.workload w SET reason = '', message = '' FROM target t WHERE w.id = t.workload AND w.reason = 'ReleaseFailed'
    RETURNING w.id
)
SELECT t.jobid, t.released_at, r.id AS recovered FROM target t LEFT JOIN recovered r ON r.id = t.workload ORDER BY t.jobid;

-- mark_release_failed --
WITH target AS (
    UPDATE fluxqueue.allocation SET release_error = %(message)s
     WHERE jobid = %(jobid)s AND released_at IS NULL AND freed_at IS NULL
    RETURNING jobid, workload
)
UPDATE fluxqueue.workload w
   SET reason = 'ReleaseFailed', message = %(message)s
  FROM target t
 WHERE w.id = t.workload AND w.state = 'Allocated'
RETURNING w.id;

-- retry_releases --
UPDATE fluxqueue.allocation
   SET next_release_at = %(now)s::timestamptz
 WHERE jobid = ANY (%(jobids)s::bigint[]) AND next_release_at > %(now)s::timestamptz AND release_error <> ''
RETURNING jobid;

-- retry_releases_soon --
UPDATE fluxqueue.allocation
   SET next_release_at = LEAST(next_release_at,
                               %(now)s::timestamptz + make_interval(secs => power(2, LEAST(release_attempts, 10) - 1)))
 WHERE jobid = ANY (%(jobids)s::bigint[]) AND next_release_at IS NOT NULL
RETURNING jobid;

-- live_allocations --
SELECT a.jobid AS a_jobid, a.kind AS a_kind, a.workload AS a_workload, a.shares AS a_shares, a.granted_at AS a_granted_at,
       a.starts_at AS a_starts_at, a.ends_at AS a_ends_at, a.released_at AS a_released_at, a.freed_at AS a_freed_at,
       a.release_attempts AS a_release_attempts, p.ranks, p.nodes, p.states, p.pod_uids, p.pod_names
  FROM fluxqueue.allocation a
  CROSS JOIN LATERAL (
      SELECT array_agg(s.rank ORDER BY s.rank) AS ranks, array_agg(s.node ORDER BY s.rank) AS nodes,
             array_agg(s.state ORDER BY s.rank) AS states, array_agg(s.pod_uid ORDER BY s.rank) AS pod_uids,
             array_agg(s.pod_name ORDER BY s.rank) AS pod_names
        FROM fluxqueue.slot s
       WHERE s.jobid = a.jobid) p
 WHERE a.freed_at IS NULL
 ORDER BY a.jobid;

-- allocations --
SELECT a.jobid AS a_jobid, a.kind AS a_kind, a.workload AS a_workload, a.shares AS a_shares, a.granted_at AS a_granted_at,
       a.starts_at AS a_starts_at, a.ends_at AS a_ends_at, a.released_at AS a_released_at, a.freed_at AS a_freed_at,
       a.release_attempts AS a_release_attempts, p.ranks, p.nodes, p.states, p.pod_uids, p.pod_names
  FROM fluxqueue.allocation a
  CROSS JOIN LATERAL (
      SELECT array_agg(s.rank ORDER BY s.rank) AS ranks, array_agg(s.node ORDER BY s.rank) AS nodes,
             array_agg(s.state ORDER BY s.rank) AS states, array_agg(s.pod_uid ORDER BY s.rank) AS pod_uids,
             array_agg(s.pod_name ORDER BY s.rank) AS pod_names
        FROM fluxqueue.slot s
       WHERE s.jobid = a.jobid) p
 WHERE a.jobid = ANY (%(jobids)s::bigint[])
 ORDER BY a.jobid;

-- move_ends --
UPDATE fluxqueue.allocation a
   SET ends_at = e.ends_at
  FROM unnest(%(jobids)s::bigint[], %(ends)s::timestamptz[]) AS e (jobid, ends_at)
 WHERE a.jobid = e.jobid AND a.freed_at IS NULL AND a.ends_at IS DISTINCT FROM e.ends_at
RETURNING a.jobid;

-- lock_allocations --
SELECT jobid FROM fluxqueue.allocation WHERE jobid = ANY (%(jobids)s::bigint[]) ORDER BY jobid FOR UPDATE;

-- take_slots --
-- After lock_allocations.
UPDATE fluxqueue.slot s
   SET state = 'taken', pod_uid = t.pod_uid, pod_name = t.pod_name
  FROM unnest(%(jobids)s::bigint[], %(ranks)s::integer[], %(pod_uids)s::text[], %(pod_names)s::text[])
       AS t (jobid, rank, pod_uid, pod_name)
 WHERE s.jobid = t.jobid AND s.rank = t.rank AND s.state = 'free'
   AND NOT EXISTS (SELECT FROM fluxqueue.slot o WHERE o.pod_uid = t.pod_uid AND o.state = 'taken');

-- slots_held --
SELECT s.jobid, s.rank, s.pod_uid, s.pod_name
  FROM unnest(%(jobids)s::bigint[], %(ranks)s::integer[], %(pod_uids)s::text[]) AS t (jobid, rank, pod_uid)
  JOIN fluxqueue.slot s USING (jobid, rank)
 WHERE s.state = 'taken' AND s.pod_uid = t.pod_uid
 ORDER BY s.jobid, s.rank;

-- vacate_slots --
UPDATE fluxqueue.slot s
   SET state = 'free', pod_uid = NULL, pod_name = NULL
  FROM unnest(%(jobids)s::bigint[], %(ranks)s::integer[], %(pod_uids)s::text[]) AS v (jobid, rank, pod_uid)
 WHERE s.jobid = v.jobid AND s.rank = v.rank AND s.state = 'taken' AND s.pod_uid = v.pod_uid
RETURNING s.jobid, s.rank;

-- end_slots --
-- After lock_allocations.
WITH gone AS (
    SELECT DISTINCT * FROM unnest(%(jobids)s::bigint[], %(ranks)s::integer[]) AS e (jobid, rank)
), ended AS (
    UPDATE fluxqueue.slot s SET state = 'ended' FROM gone e WHERE s.jobid = e.jobid AND s.rank = e.rank AND s.state <> 'ended'
)
UPDATE fluxqueue.allocation a
   SET freed_at = %(now)s::timestamptz, next_release_at = NULL
 WHERE a.jobid IN (SELECT jobid FROM gone)
   AND a.freed_at IS NULL
   AND NOT EXISTS (
       SELECT FROM fluxqueue.slot s
        WHERE s.jobid = a.jobid AND s.state <> 'ended' AND (s.jobid, s.rank) NOT IN (SELECT jobid, rank FROM gone))
RETURNING a.jobid;

-- replace --
-- After make_months, and lock_workloads of both. The allocation keeps its job id, so nothing changes in the matcher; its release is due again.
-- What the replaced workload had until now is recorded, because its allocation begins anew as that of the other.
WITH wanted AS (
    SELECT *
      FROM unnest(%(replaced)s::bigint[], %(replacements)s::bigint[], %(states)s::text[], %(outcomes)s::text[], %(messages)s::text[],
                  %(rates)s::jsonb[])
           AS i (replaced, replacement, after, outcome, message, rates)
), target AS (
    SELECT i.*, a.jobid, f.state AS before, f.hosts, f.namespace, f.queue, f.account, f.submitted_by,
           a.granted_at AS held_since, a.released_at, a.shares, a.rates AS former_rates
      FROM wanted i
      JOIN fluxqueue.workload f ON f.id = i.replaced AND f.state = ANY (%(from)s::text[])
      JOIN fluxqueue.workload n ON n.id = i.replacement AND n.state = 'Pending'
      JOIN fluxqueue.allocation a ON a.workload = f.id AND a.kind = 'grant' AND a.freed_at IS NULL
), passed AS (
    UPDATE fluxqueue.allocation a
       SET workload = t.replacement, granted_at = %(now)s::timestamptz, released_at = NULL, next_release_at = %(now)s::timestamptz,
           release_attempts = 0, release_error = '', rates = t.rates
      FROM target t
     WHERE a.jobid = t.jobid
    RETURNING a.jobid, a.granted_at
), recorded AS (
    INSERT INTO fluxqueue.ended_allocation (jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts, account,
                                             submitted_by, rates)
    SELECT jobid, replaced, namespace, queue, held_since, released_at, %(now)s::timestamptz, jsonb_array_length(shares),
           fluxqueue.amounts_of(shares), account, submitted_by, fluxqueue.rates_until(former_rates, %(now)s::timestamptz)
      FROM target
    ON CONFLICT DO NOTHING
), emptied AS (
    UPDATE fluxqueue.slot s
       SET state = 'free', pod_uid = NULL, pod_name = NULL
      FROM target t
     WHERE s.jobid = t.jobid AND s.state = 'taken'
    RETURNING s.jobid, s.rank
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Allocated', reason = '', message = '', jobid = t.jobid, hosts = t.hosts, allocated_at = %(now)s::timestamptz
      FROM target t
     WHERE w.id = t.replacement
    RETURNING w.id, w.allocated_at
), ended AS (
    UPDATE fluxqueue.workload w
       SET state = t.after, outcome = t.outcome, reason = '', message = t.message, finished_at = %(now)s::timestamptz
      FROM target t
     WHERE w.id = t.replaced
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT replaced, %(now)s::timestamptz, before, after, outcome, message, %(epoch)s FROM target
    UNION ALL
    SELECT replacement, %(now)s::timestamptz, 'Pending', 'Allocated', '', 'job ' || jobid || ', taken over from workload ' || replaced, %(epoch)s
      FROM target
), unreserved AS (
    DELETE FROM fluxqueue.reservation r USING target t WHERE r.workload = t.replacement
)
SELECT t.replaced, t.replacement, t.jobid, t.hosts, p.granted_at, m.allocated_at,
       ARRAY(SELECT e.rank FROM emptied e WHERE e.jobid = t.jobid ORDER BY e.rank) AS emptied
  FROM target t JOIN passed p USING (jobid) JOIN moved m ON m.id = t.replacement
 ORDER BY t.replacement;
