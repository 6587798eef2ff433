-- upsert --
-- What is unchanged, or not pending any more, is left out before the insertion: ON CONFLICT would lock, and so write, each such row.
WITH found AS (
    SELECT *
      FROM unnest(%(uid)s::text[], %(api_version)s::text[], %(kind)s::text[], %(namespace)s::text[], %(name)s::text[],
                  %(queue)s::text[], %(priority)s::bigint[], %(jobspec)s::text[], %(shape)s::text[], %(pods)s::integer[],
                  %(duration_s)s::bigint[], %(duration_assumed)s::boolean[], %(release_mode)s::text[], %(generation)s::bigint[],
                  %(reason)s::text[], %(message)s::text[], %(wishes)s::jsonb[], %(done_indexes)s::text[])
      WITH ORDINALITY AS f (uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s,
                            duration_assumed, release_mode, generation, reason, message, wishes, done_indexes, place)
), stored AS (
    INSERT INTO fluxqueue.workload AS w (
        uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed, release_mode,
        generation, state, reason, message, found_reason, found_message, wishes, done_indexes, submitted_at)
    SELECT f.uid, f.api_version, f.kind, f.namespace, f.name, f.queue, f.priority, f.jobspec, f.shape, f.pods, f.duration_s,
           f.duration_assumed, f.release_mode, f.generation, 'Pending', f.reason, f.message, f.reason, f.message,
           f.wishes, f.done_indexes, (SELECT clock_timestamp())
      FROM found f
     WHERE NOT EXISTS (SELECT FROM fluxqueue.history h WHERE h.uid = f.uid)
       AND NOT EXISTS (
           SELECT FROM fluxqueue.workload o
            WHERE o.uid = f.uid
              AND (o.state <> 'Pending'
                   OR (o.queue, o.priority, o.jobspec, o.shape, o.pods, o.duration_s, o.duration_assumed, o.release_mode,
                       o.generation, o.found_reason, o.found_message, o.wishes, o.done_indexes)
                      IS NOT DISTINCT FROM
                      (f.queue, f.priority, f.jobspec, f.shape, f.pods, f.duration_s, f.duration_assumed, f.release_mode,
                       f.generation, f.reason, f.message, f.wishes, f.done_indexes)))
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
           wishes = EXCLUDED.wishes,
           done_indexes = EXCLUDED.done_indexes,
           (reason, message) = (
               SELECT CASE WHEN same THEN w.reason ELSE EXCLUDED.reason END,
                      CASE WHEN same THEN w.message ELSE EXCLUDED.message END
                 FROM (SELECT (w.queue, w.jobspec, w.shape, w.pods, w.duration_s, w.release_mode, w.found_reason, w.found_message)
                              IS NOT DISTINCT FROM
                              (EXCLUDED.queue, EXCLUDED.jobspec, EXCLUDED.shape, EXCLUDED.pods, EXCLUDED.duration_s,
                               EXCLUDED.release_mode, EXCLUDED.found_reason, EXCLUDED.found_message) AS same) AS judged)
     WHERE w.state = 'Pending'
    RETURNING w.id, w.uid, w.xmax = 0 AS inserted
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT s.id, (SELECT clock_timestamp()), NULL, 'Pending', f.reason, f.message, %(epoch)s
      FROM stored s JOIN found f USING (uid)
     WHERE s.inserted
     ORDER BY s.id
)
SELECT uid, inserted FROM stored;

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
           started_at = CASE WHEN %(after)s = 'Running' THEN (SELECT clock_timestamp()) ELSE w.started_at END
      FROM target t
     WHERE w.id = t.id
    RETURNING w.id, t.before
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, (SELECT clock_timestamp()), before, %(after)s, '', '', %(epoch)s FROM moved
)
SELECT id FROM moved ORDER BY id;

-- finish --
-- After lock_workloads.
WITH target AS (
    SELECT w.id, w.state AS before, e.after, e.outcome, e.message
      FROM unnest(%(ids)s::bigint[], %(states)s::text[], %(outcomes)s::text[], %(messages)s::text[]) AS e (id, after, outcome, message)
      JOIN fluxqueue.workload w USING (id)
     WHERE w.state = ANY (%(from)s::text[])
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = t.after, outcome = t.outcome, reason = '', message = t.message, finished_at = (SELECT clock_timestamp())
      FROM target t
     WHERE w.id = t.id
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, (SELECT clock_timestamp()), before, after, outcome, message, %(epoch)s FROM target
), freed AS (
    UPDATE fluxqueue.allocation a
       SET freed_at = (SELECT clock_timestamp()), next_release_at = NULL
      FROM target t
     WHERE a.workload = t.id AND a.freed_at IS NULL
    RETURNING a.jobid
), ended AS (
    UPDATE fluxqueue.slot s SET state = 'ended' FROM freed f WHERE s.jobid = f.jobid AND s.state <> 'ended'
), unplanned AS (
    DELETE FROM fluxqueue.reservation r USING target t WHERE r.workload = t.id
)
SELECT jobid FROM freed ORDER BY jobid;

-- take_back --
-- What drains without a reason is ending; it gets the reason, and no line of history.
WITH wanted AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(reasons)s::text[], %(messages)s::text[], %(setbacks)s::jsonb[])
        AS x (id, reason, message, setbacks)
), target AS (
    SELECT w.id, w.state AS before
      FROM fluxqueue.workload w JOIN wanted x USING (id)
     WHERE w.state = ANY (%(from)s::text[]) OR (w.state = 'Draining' AND w.reason = '')
     ORDER BY w.id
       FOR UPDATE OF w
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Draining', reason = x.reason, message = x.message, setbacks = COALESCE(x.setbacks, w.setbacks)
      FROM target t JOIN wanted x USING (id)
     WHERE w.id = t.id
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, (SELECT clock_timestamp()), before, 'Draining', x.reason, x.message, %(epoch)s
      FROM target JOIN wanted x USING (id)
     WHERE before <> 'Draining'
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
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, (SELECT clock_timestamp()), before, 'Pending', reason, message, %(epoch)s FROM target
), reduced AS (
    UPDATE fluxqueue.allocation a
       SET kind = CASE WHEN a.jobid IN (SELECT jobid FROM kept) THEN 'remnant' ELSE a.kind END,
           released_at = COALESCE(a.released_at, (SELECT clock_timestamp())),
           freed_at = CASE WHEN a.jobid IN (SELECT jobid FROM kept) THEN NULL ELSE (SELECT clock_timestamp()) END,
           next_release_at = NULL
      FROM target t
     WHERE a.workload = t.id AND a.freed_at IS NULL AND a.kind <> 'remnant'
    RETURNING a.jobid, a.workload, a.freed_at IS NOT NULL AS freed, a.released_at
), ended AS (
    UPDATE fluxqueue.slot s SET state = 'ended'
      FROM reduced r
     WHERE s.jobid = r.jobid AND s.state <> 'ended' AND (s.jobid, s.rank) NOT IN (SELECT jobid, rank FROM kept)
)
SELECT t.id, r.jobid, r.freed FROM target t LEFT JOIN reduced r ON r.workload = t.id ORDER BY t.id, r.jobid;

-- take_up_again --
WITH target AS (
    SELECT id FROM fluxqueue.workload WHERE uid = ANY (%(uids)s::text[]) AND state = 'Cancelled' ORDER BY id FOR UPDATE
), moved AS (
    UPDATE fluxqueue.workload w
       SET state = 'Pending', outcome = '', reason = '', message = '', found_reason = '', found_message = '', finished_at = NULL,
           submitted_at = (SELECT clock_timestamp()), allocated_at = NULL, started_at = NULL, jobid = NULL, hosts = '',
           wishes = '{}', setbacks = '{}', generation = -1
      FROM target t
     WHERE w.id = t.id
), logged AS (
    INSERT INTO fluxqueue.transition (workload, at, before, after, reason, detail, epoch)
    SELECT id, (SELECT clock_timestamp()), 'Cancelled', 'Pending', '', 'its user resumed it', %(epoch)s FROM target
)
SELECT id FROM target ORDER BY id;

-- history --
SELECT workload, at, before, after, reason, detail, epoch
  FROM fluxqueue.transition
 WHERE workload = %(workload)s
 ORDER BY id;

-- forget --
-- Allocations, slots and reservations go with their workload.
WITH old AS (
    SELECT id FROM fluxqueue.workload
     WHERE finished_at < %(before)s
     ORDER BY finished_at
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM fluxqueue.workload w USING old WHERE w.id = old.id RETURNING w.*
), kept AS (
    INSERT INTO fluxqueue.history (
        id, uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed,
        release_mode, generation, state, reason, message, found_reason, found_message, submitted_at, allocated_at, started_at,
        finished_at, outcome, requeues, jobid, hosts)
    SELECT id, uid, api_version, kind, namespace, name, queue, priority, '', shape, pods, duration_s, duration_assumed,
           release_mode, generation, state, reason, message, found_reason, found_message, submitted_at, allocated_at, started_at,
           finished_at, outcome, requeues, jobid, hosts
      FROM gone
)
SELECT count(*) AS forgotten FROM gone;

-- counts --
SELECT queue, state, reason, count(*) AS workloads, COALESCE(sum(pods), 0)::bigint AS pods
  FROM fluxqueue.workload
 GROUP BY queue, state, reason
 ORDER BY queue, state, reason;
