-- upsert --
-- What is unchanged, or not pending any more, is left out before the insertion: ON CONFLICT would lock, and so write, each such row.
WITH found AS (
    SELECT *
      FROM unnest(%(uid)s::text[], %(api_version)s::text[], %(kind)s::text[], %(namespace)s::text[], %(name)s::text[],
                  %(queue)s::text[], %(priority)s::bigint[], %(jobspec)s::text[], %(shape)s::text[], %(pods)s::integer[],
                  %(duration_s)s::bigint[], %(duration_assumed)s::boolean[], %(release_mode)s::text[], %(generation)s::bigint[],
                  %(reason)s::text[], %(message)s::text[], %(overrides)s::jsonb[], %(done_indexes)s::text[], %(requeue_state)s::jsonb[],
                  %(submitted_at)s::timestamptz[], %(start_conditions)s::jsonb[], %(account)s::text[], %(submitted_by)s::text[])
      WITH ORDINALITY AS f (uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s,
                            duration_assumed, release_mode, generation, reason, message, overrides, done_indexes, requeue_state, submitted_at,
                            start_conditions, account, submitted_by, place)
), stored AS (
    INSERT INTO fluxqueue.workload AS w (
        uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed, release_mode,
        generation, state, reason, message, found_reason, found_message, overrides, done_indexes, requeue_state, submitted_at,
        start_conditions, account, submitted_by)
    SELECT f.uid, f.api_version, f.kind, f.namespace, f.name, f.queue, f.priority, f.jobspec, f.shape, f.pods, f.duration_s,
           f.duration_assumed, f.release_mode, f.generation, 'Pending', f.reason, f.message, f.reason, f.message,
           f.overrides, f.done_indexes, f.requeue_state, coalesce(f.submitted_at, %(now)s::timestamptz),
           f.start_conditions, f.account, f.submitted_by
      FROM found f
     WHERE NOT EXISTS (SELECT FROM fluxqueue.history h WHERE h.uid = f.uid)
       AND NOT EXISTS (
           SELECT FROM fluxqueue.workload o
            WHERE o.uid = f.uid
              AND (o.state <> 'Pending'
                   OR (o.queue, o.priority, o.jobspec, o.shape, o.pods, o.duration_s, o.duration_assumed, o.release_mode,
                       o.generation, o.found_reason, o.found_message, o.overrides, o.done_indexes, o.start_conditions, o.account,
                       o.submitted_by)
                      IS NOT DISTINCT FROM
                      (f.queue, f.priority, f.jobspec, f.shape, f.pods, f.duration_s, f.duration_assumed, f.release_mode,
                       f.generation, f.reason, f.message, f.overrides, f.done_indexes, f.start_conditions, f.account,
                       f.submitted_by)))
     ORDER BY f.place
    ON CONFLICT (uid) DO UPDATE
       SET queue = EXCLUDED.queue,
           priority = EXCLUDED.priority,
           jobspec = EXCLUDED.jobspec,
           shape = EXCLUDED.shape,
           pods = EXCLUDED.pods,
           duration_s = EXCLUDED.duration_s,
           duration_assumed = EXCLUDED.duration_assumed,
           release_mode = EXCLUDED.release_mode,
           generation = EXCLUDED.generation,
           found_reason = EXCLUDED.found_reason,
           found_message = EXCLUDED.found_message,
           overrides = EXCLUDED.overrides,
           done_indexes = EXCLUDED.done_indexes,
           start_conditions = EXCLUDED.start_conditions,
           account = EXCLUDED.account,
           submitted_by = EXCLUDED.submitted_by,
           (reason, message) = (
               SELECT CASE WHEN same THEN w.reason ELSE EXCLUDED.reason END,
                      CASE WHEN same THEN w.message ELSE EXCLUDED.message END
                 FROM (SELECT (w.queue, w.jobspec, w.shape, w.pods, w.duration_s, w.release_mode, w.found_reason, w.found_message)
                              IS NOT DISTINCT FROM
                              (EXCLUDED.queue, EXCLUDED.jobspec, EXCLUDED.shape, EXCLUDED.pods, EXCLUDED.duration_s,
                               EXCLUDED.release_mode, EXCLUDED.found_reason, EXCLUDED.found_message) AS same) AS judged)
     WHERE w.state = 'Pending'
    RETURNING w.*, w.xmax = 0 AS inserted
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT s.id, %(now)s::timestamptz, NULL, 'Pending', f.reason, f.message, %(epoch)s
      FROM stored s JOIN found f USING (uid)
     WHERE s.inserted
     ORDER BY s.id
)
SELECT * FROM stored;

-- workloads_by_uid --
SELECT * FROM fluxqueue.workload WHERE uid = ANY (%(uid)s::text[])
UNION ALL
SELECT * FROM fluxqueue.history WHERE uid = ANY (%(uid)s::text[]);

-- workloads --
SELECT * FROM fluxqueue.workload WHERE id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT * FROM fluxqueue.history WHERE id = ANY (%(ids)s::bigint[])
 ORDER BY id;

-- pending --
SELECT * FROM fluxqueue.workload WHERE state = 'Pending' ORDER BY priority DESC, submitted_at, id;

-- owner_requeue_states --
SELECT w.requeue_state, COALESCE(w.finished_at, %(now)s::timestamptz) AS at
  FROM fluxqueue.workload w
 WHERE w.finished_at > %(since)s AND w.requeue_state ->> 'owner' <> ''
UNION ALL
SELECT w.requeue_state, %(now)s::timestamptz
  FROM fluxqueue.workload w
 WHERE w.state IN ('Allocated', 'Running', 'Draining') AND w.requeue_state ->> 'owner' <> ''
 ORDER BY at;

-- live_workloads --
SELECT * FROM fluxqueue.workload WHERE state IN ('Allocated', 'Running', 'Draining') ORDER BY id;

-- lock_workloads --
SELECT id FROM fluxqueue.workload WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id FOR UPDATE;

-- set_reasons --
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[]) AS x (id, reason, message)
), target AS (
    SELECT w.id
      FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state = ANY (%(states)s::text[]) AND (w.reason, w.message) IS DISTINCT FROM (x.reason, x.message)
     ORDER BY w.id
       FOR UPDATE OF w
)
UPDATE fluxqueue.workload w
   SET reason = x.reason, message = x.message
  FROM target t JOIN wanted x USING (id)
 WHERE w.id = t.id
RETURNING w.id;

-- set_requeue_states --
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(requeue_state)s::jsonb[]) AS x (id, requeue_state)
), target AS (
    SELECT w.id FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state IN ('Pending', 'Allocated', 'Running', 'Draining')
     ORDER BY w.id
       FOR UPDATE OF w
)
UPDATE fluxqueue.workload w
   SET requeue_state = x.requeue_state
  FROM target t JOIN wanted x USING (id)
 WHERE w.id = t.id
RETURNING w.id;

-- move --
WITH target AS (
    SELECT id, state AS before FROM fluxqueue.workload
     WHERE id = ANY (%(ids)s::bigint[]) AND state = ANY (%(from)s::text[])
     ORDER BY id
       FOR UPDATE
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = %(after)s,
           reason = '',
           message = '',
           started_at = CASE WHEN %(after)s = 'Running' THEN %(now)s::timestamptz ELSE w.started_at END
      FROM target t
     WHERE w.id = t.id
    RETURNING w.id, t.before, w.started_at
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, before, %(after)s, '', '', %(epoch)s FROM moved
)
SELECT id, started_at FROM moved ORDER BY id;

-- finish --
-- After lock_workloads.
WITH target AS (
    SELECT w.id, w.state AS before, e.after, e.outcome, e.message, e.began
      FROM unnest(%(ids)s::bigint[], %(states)s::text[], %(outcomes)s::text[], %(messages)s::text[], %(began)s::timestamptz[])
        AS e (id, after, outcome, message, began)
      JOIN fluxqueue.workload w USING (id)
     WHERE w.state = ANY (%(from)s::text[])
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = t.after, outcome = t.outcome, reason = '', message = t.message, finished_at = %(now)s::timestamptz,
           started_at = CASE WHEN w.started_at IS NULL AND t.began IS NOT NULL AND w.allocated_at IS NOT NULL
                             THEN LEAST(GREATEST(t.began, w.allocated_at), %(now)s::timestamptz)
                             ELSE w.started_at END
      FROM target t
     WHERE w.id = t.id
    RETURNING w.id, w.started_at, w.finished_at
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, before, after, outcome, message, %(epoch)s FROM target
), freed AS (
    UPDATE fluxqueue.allocation a
       SET freed_at = %(now)s::timestamptz, next_release_at = NULL
      FROM target t
     WHERE a.workload = t.id AND a.freed_at IS NULL
    RETURNING a.jobid
), ended AS (
    UPDATE fluxqueue.slot s SET state = 'ended' FROM freed f WHERE s.jobid = f.jobid AND s.state <> 'ended'
), unplanned AS (
    DELETE FROM fluxqueue.reservation r USING target t WHERE r.workload = t.id
)
SELECT NULL::bigint AS id, NULL::timestamptz AS started_at, NULL::timestamptz AS finished_at, jobid FROM freed
UNION ALL
SELECT id, started_at, finished_at, NULL FROM moved
 ORDER BY jobid, id;

-- evict --
-- What drains without a reason is ending; it gets the reason, and no line of history.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[], %(requeue_state)s::jsonb[])
        AS x (id, reason, message, requeue_state)
), target AS (
    SELECT w.id, w.state AS before
      FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state = ANY (%(from)s::text[]) OR (w.state = 'Draining' AND w.reason = '')
     ORDER BY w.id
       FOR UPDATE OF w
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Draining', reason = x.reason, message = x.message, requeue_state = COALESCE(x.requeue_state, w.requeue_state)
      FROM target t JOIN wanted x USING (id)
     WHERE w.id = t.id
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, before, 'Draining', x.reason, x.message, %(epoch)s
      FROM target JOIN wanted x USING (id)
     WHERE before <> 'Draining'
)
SELECT id FROM target ORDER BY id;

-- withdraw --
-- Preempted work goes on, of which nothing has ended.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(states)s::text[], %(requeue_state)s::jsonb[], %(messages)s::text[], %(jobids)s::bigint[],
                         %(ends)s::timestamptz[])
        AS x (id, state, requeue_state, message, jobid, ends_at)
), target AS (
    SELECT w.id FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state = 'Draining' AND w.reason = 'Preempted'
     ORDER BY w.id
       FOR UPDATE OF w
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = x.state, reason = '', message = '', requeue_state = x.requeue_state
      FROM target t JOIN wanted x USING (id)
     WHERE w.id = t.id
), planned AS (
    UPDATE fluxqueue.allocation a
       SET ends_at = x.ends_at
      FROM target t JOIN wanted x USING (id)
     WHERE a.jobid = x.jobid AND a.workload = t.id AND a.freed_at IS NULL
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, 'Draining', x.state, '', x.message, %(epoch)s FROM target JOIN wanted x USING (id)
)
SELECT id FROM target ORDER BY id;

-- requeue --
-- After lock_workloads. An allocation with a slot that is kept becomes a remnant: it holds that slot and nothing else.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[]) AS x (id, reason, message)
), kept AS (
    SELECT * FROM unnest(%(kept_jobids)s::bigint[], %(kept_ranks)s::integer[]) AS k (jobid, rank)
), target AS (
    SELECT w.id, w.state AS before, x.reason, x.message
      FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state = ANY (%(from)s::text[])
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Pending', reason = t.reason, message = t.message, allocated_at = NULL, started_at = NULL,
           jobid = NULL, hosts = '', requeues = w.requeues + 1, generation = %(unread)s
      FROM target t
     WHERE w.id = t.id
    RETURNING w.id, w.requeues
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, before, 'Pending', reason, message, %(epoch)s FROM target
), reduced AS (
    UPDATE fluxqueue.allocation a
       SET kind = CASE WHEN a.jobid IN (SELECT jobid FROM kept) THEN 'remnant' ELSE a.kind END,
           released_at = COALESCE(a.released_at, %(now)s::timestamptz),
           freed_at = CASE WHEN a.jobid IN (SELECT jobid FROM kept) THEN NULL ELSE %(now)s::timestamptz END,
           next_release_at = NULL
      FROM target t
     WHERE a.workload = t.id AND a.freed_at IS NULL AND a.kind <> 'remnant'
    RETURNING a.jobid, a.workload, a.freed_at IS NOT NULL AS freed, a.released_at
), ended AS (
    UPDATE fluxqueue.slot s SET state = 'ended'
      FROM reduced r
     WHERE s.jobid = r.jobid AND s.state <> 'ended' AND (s.jobid, s.rank) NOT IN (SELECT jobid, rank FROM kept)
    RETURNING s.jobid, s.rank
)
SELECT m.id, m.requeues, r.jobid, r.freed, r.released_at,
       ARRAY(SELECT e.rank FROM ended e WHERE e.jobid = r.jobid AND NOT r.freed ORDER BY e.rank) AS ended
  FROM moved m LEFT JOIN reduced r ON r.workload = m.id
 ORDER BY m.id, r.jobid;

-- resubmit --
WITH target AS (
    SELECT id FROM fluxqueue.workload WHERE uid = ANY (%(uids)s::text[]) AND state = 'Cancelled' ORDER BY id FOR UPDATE
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Pending', outcome = '', reason = '', message = '', found_reason = '', found_message = '', finished_at = NULL,
           submitted_at = %(now)s::timestamptz, promised_at = NULL, allocated_at = NULL, started_at = NULL, jobid = NULL, hosts = '',
           overrides = '{}', requeue_state = '{}', start_conditions = '{}', generation = -1
      FROM target t
     WHERE w.id = t.id
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, %(now)s::timestamptz, 'Cancelled', 'Pending', '', 'its user resumed it', %(epoch)s FROM target
)
SELECT id FROM target ORDER BY id;

-- history --
SELECT workload, at, before, after, reason, detail, epoch
  FROM fluxqueue.transition
 WHERE workload = %(workload)s
 ORDER BY id;

-- requeue_reasons --
-- What drains to be matched again has a reason; what a release refused goes back without draining.
SELECT workload, at, before, after, reason, detail, epoch
  FROM fluxqueue.losses_of(%(workload)s)
 ORDER BY id DESC
 LIMIT %(limit)s;

-- counts --
SELECT queue, state, reason, count(*) AS workloads, COALESCE(sum(pods), 0)::bigint AS pods
  FROM fluxqueue.workload
 GROUP BY queue, state, reason
 ORDER BY queue, state, reason;
