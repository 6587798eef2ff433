-- read_only --
-- First statement of a transaction for people: it writes nothing and ends in time.
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %(timeout)s, true);

-- accounting_jobs --
-- One page, in the order: not ended, then by end, the newest first. Both parts are read in this order up to the limit, the records by their
-- primary key: a page costs the same wherever it is, and a year of pages is read once and not once for each of them. What lost its nodes and
-- ended before it had others shows its last run.
WITH found AS (
    (SELECT id, uid, api_version, kind, namespace, name, queue, account, submitted_by, priority, pods, duration_s, duration_assumed, state,
            outcome, reason, message, submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, resumed
       FROM fluxqueue.jobs
      WHERE finished_at IS NULL AND %(live)s::boolean
        AND ('infinity'::timestamptz, id) < (%(after_at)s::text::timestamptz, %(after_id)s::bigint)
        AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s::text)
        AND (%(account)s::text IS NULL OR account = %(account)s::text)
        AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
        AND (%(user)s::text IS NULL OR submitted_by = %(user)s::text)
        AND (%(name)s::text IS NULL OR name = %(name)s::text)
        AND (%(kind)s::text IS NULL OR lower(kind) = %(kind)s::text)
        AND (%(states)s::text[] = '{}' OR state = ANY (%(states)s::text[]))
      ORDER BY id DESC
      LIMIT %(limit)s)
    UNION ALL
    (SELECT id, uid, api_version, kind, namespace, name, queue, account, submitted_by, priority, pods, duration_s, duration_assumed, state,
            outcome, reason, message, submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, resumed
       FROM fluxqueue.jobs
      WHERE finished_at >= %(since)s::timestamptz AND finished_at < %(until)s::timestamptz
        AND finished_at <= %(after_at)s::text::timestamptz
        AND (finished_at, id) < (%(after_at)s::text::timestamptz, %(after_id)s::bigint)
        AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s::text)
        AND (%(account)s::text IS NULL OR account = %(account)s::text)
        AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
        AND (%(user)s::text IS NULL OR submitted_by = %(user)s::text)
        AND (%(name)s::text IS NULL OR name = %(name)s::text)
        AND (%(kind)s::text IS NULL OR lower(kind) = %(kind)s::text)
        AND (%(states)s::text[] = '{}' OR state = ANY (%(states)s::text[]))
      ORDER BY finished_at DESC, id DESC
      LIMIT %(limit)s)
)
SELECT id, uid, api_version, kind, namespace, name, queue, account, submitted_by AS "user", priority, pods, duration_s, duration_assumed,
       state, outcome, reason, left(message, 300) AS message, submitted_at, promised_at, allocated_at, started_at, finished_at,
       EXTRACT(epoch FROM allocated_at - promised_at)::double precision AS start_error_s, requeues, found.jobid,
       CASE WHEN length(COALESCE(lost.nodes, hosts)) <= 2000 THEN COALESCE(lost.nodes, hosts) ELSE '' END AS hosts, resumed,
       EXTRACT(epoch FROM COALESCE(started_at, lost.released_at, finished_at, %(now)s::timestamptz) - submitted_at)::double precision
           AS wait_s,
       EXTRACT(epoch FROM COALESCE(lost.freed_at, finished_at, %(now)s::timestamptz) - COALESCE(started_at, lost.released_at))
           ::double precision AS run_s,
       (SELECT (a.amounts ->> 'cpu')::double precision / 1000
          FROM fluxqueue.allocations a
         WHERE a.workload = found.id AND a.jobid = COALESCE(found.jobid, lost.jobid)
         LIMIT 1) AS cores,
       CASE WHEN %(priced)s::boolean THEN
            (SELECT sum(a.cost)
               FROM fluxqueue.allocations a
              WHERE a.workload = found.id AND a.granted_at >= found.submitted_at - interval '1 second'
                AND a.granted_at <= COALESCE(found.finished_at, 'infinity') + interval '1 second') END AS cost
  FROM found
  LEFT JOIN LATERAL (
       SELECT a.jobid, a.released_at, a.freed_at,
              (SELECT string_agg(DISTINCT s.node, ',' ORDER BY s.node) FROM fluxqueue.slot s WHERE s.jobid = a.jobid) AS nodes
         FROM fluxqueue.allocations a
        WHERE found.jobid IS NULL AND found.requeues > 0 AND found.finished_at IS NOT NULL
          AND a.workload = found.id AND a.freed_at > a.released_at
          AND a.granted_at >= found.submitted_at - interval '1 second' AND a.freed_at <= found.finished_at + interval '1 second'
        ORDER BY a.granted_at DESC
        LIMIT 1) AS lost ON true
 ORDER BY COALESCE(finished_at, 'infinity') DESC, id DESC
 LIMIT %(limit)s;

-- accounting_report --
-- Use between two times: what was held before and after them is not counted. An allocation counts on each day for its part of it. Beside it,
-- how far the first estimates of what got nodes between these times were off.
WITH held AS (
    SELECT a.workload, a.namespace, a.queue, a.account, a.submitted_by, a.nodes, a.amounts, a.rates,
           GREATEST(a.granted_at, %(since)s::timestamptz) AT TIME ZONE 'UTC' AS first,
           LEAST(COALESCE(a.freed_at, %(now)s::timestamptz), %(until)s::timestamptz) AT TIME ZONE 'UTC' AS last
      FROM fluxqueue.allocations a
     WHERE (a.freed_at IS NULL OR a.freed_at > %(since)s::timestamptz)
       AND a.granted_at < %(until)s::timestamptz
       AND (%(namespace)s::text IS NULL OR a.namespace = %(namespace)s::text)
       AND (%(account)s::text IS NULL OR a.account = %(account)s::text)
       AND (%(queue)s::text IS NULL OR a.queue = %(queue)s::text)
       AND (%(user)s::text IS NULL OR a.submitted_by = %(user)s::text)
), used AS (
    SELECT CASE WHEN 'day' = ANY (%(by)s::text[]) THEN to_char(d.day, 'YYYY-MM-DD') END AS day,
           CASE WHEN 'namespace' = ANY (%(by)s::text[]) THEN h.namespace END AS namespace,
           CASE WHEN 'account' = ANY (%(by)s::text[]) THEN h.account END AS account,
           CASE WHEN 'queue' = ANY (%(by)s::text[]) THEN h.queue END AS queue,
           CASE WHEN 'user' = ANY (%(by)s::text[]) THEN h.submitted_by END AS "user",
           count(DISTINCT h.workload) AS jobs,
           sum(h.nodes * s.seconds) AS node_s,
           sum(COALESCE((h.amounts ->> 'cpu')::double precision, 0) / 1000 * s.seconds) AS cpu_s,
           sum(COALESCE((h.amounts ->> 'memory')::double precision, 0) / 1024 * s.seconds) AS memory_gib_s,
           sum(COALESCE(g.gpus, 0) * s.seconds)::double precision AS gpu_s,
           CASE WHEN %(priced)s::boolean THEN
                COALESCE(sum(fluxqueue.cost_of(h.rates, GREATEST(h.first, d.day) AT TIME ZONE 'UTC', LEAST(h.last, d.ends) AT TIME ZONE 'UTC')), 0)
           END AS cost
      FROM held h
     CROSS JOIN LATERAL (
           SELECT h.first AS day, h.last AS ends WHERE NOT 'day' = ANY (%(by)s::text[])
           UNION ALL
           SELECT e, e + interval '1 day' FROM generate_series(date_trunc('day', h.first), h.last, interval '1 day') AS e
            WHERE 'day' = ANY (%(by)s::text[])) AS d
     CROSS JOIN LATERAL (
           SELECT EXTRACT(epoch FROM LEAST(h.last, d.ends) - GREATEST(h.first, d.day))::double precision AS seconds) AS s
     CROSS JOIN LATERAL (
           SELECT sum(e.value::bigint) AS gpus FROM jsonb_each_text(h.amounts) AS e WHERE e.key LIKE '%%:gpu') AS g
     WHERE s.seconds > 0
     GROUP BY 1, 2, 3, 4, 5
), started AS (
    SELECT CASE WHEN 'day' = ANY (%(by)s::text[]) THEN to_char(j.allocated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') END AS day,
           CASE WHEN 'namespace' = ANY (%(by)s::text[]) THEN j.namespace END AS namespace,
           CASE WHEN 'account' = ANY (%(by)s::text[]) THEN j.account END AS account,
           CASE WHEN 'queue' = ANY (%(by)s::text[]) THEN j.queue END AS queue,
           CASE WHEN 'user' = ANY (%(by)s::text[]) THEN j.submitted_by END AS "user",
           count(*) AS estimated,
           avg(abs(EXTRACT(epoch FROM j.allocated_at - j.promised_at)))::double precision AS start_error_s
      FROM fluxqueue.jobs j
     WHERE j.promised_at IS NOT NULL
       AND j.allocated_at >= %(since)s::timestamptz AND j.allocated_at < %(until)s::timestamptz
       AND (j.finished_at IS NULL OR j.finished_at >= %(since)s::timestamptz)
       AND (%(namespace)s::text IS NULL OR j.namespace = %(namespace)s::text)
       AND (%(account)s::text IS NULL OR j.account = %(account)s::text)
       AND (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
       AND (%(user)s::text IS NULL OR j.submitted_by = %(user)s::text)
     GROUP BY 1, 2, 3, 4, 5
)
SELECT u.*, COALESCE(s.estimated, 0) AS estimated, s.start_error_s
  FROM used u
  LEFT JOIN started s
    ON COALESCE(s.day, '') = COALESCE(u.day, '') AND COALESCE(s.namespace, '') = COALESCE(u.namespace, '')
   AND COALESCE(s.account, '') = COALESCE(u.account, '') AND COALESCE(s.queue, '') = COALESCE(u.queue, '')
   AND COALESCE(s."user", '') = COALESCE(u."user", '')
 ORDER BY u.day, u.node_s DESC, u.namespace, u.account, u.queue, u."user"
 LIMIT %(limit)s;
