-- make_months --
-- Before a statement that writes a record.
SELECT fluxqueue.make_months();

-- expire_months --
SELECT expired AS month FROM fluxqueue.expire_months(%(keep)s, %(drop)s) AS expired;

-- prune_slots --
-- Those of the oldest freed allocations. An allocation has as many slots as its gang has pods, so the slots are counted. Rows are named by
-- ctid, and found for each allocation separately: so no plan reads a whole table, whatever its statistics are.
WITH old AS (
    SELECT jobid FROM fluxqueue.allocation WHERE freed_at < %(before)s ORDER BY freed_at LIMIT %(allocations)s
), gone AS (
    DELETE FROM fluxqueue.slot
     WHERE ctid = ANY (ARRAY(
         SELECT s.place
           FROM old CROSS JOIN LATERAL (
               SELECT ctid AS place FROM fluxqueue.slot WHERE slot.jobid = old.jobid LIMIT %(slots)s) s
          LIMIT %(slots)s))
    RETURNING jobid
)
SELECT count(*) AS pruned FROM gone;

-- prune_allocations --
-- After prune_slots: those without slots. What they had of nodes is recorded. Their workloads are found one by one, as above.
WITH old AS (
    SELECT ctid AS place, jobid FROM fluxqueue.allocation WHERE freed_at < %(before)s ORDER BY freed_at LIMIT %(allocations)s
), gone AS (
    DELETE FROM fluxqueue.allocation
     WHERE ctid = ANY (ARRAY(
         SELECT place FROM old WHERE (SELECT s.rank FROM fluxqueue.slot s WHERE s.jobid = old.jobid LIMIT 1) IS NULL))
    RETURNING *
), recorded AS (
    INSERT INTO fluxqueue.ended_allocation (jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts, account,
                                             submitted_by, rates)
    SELECT g.jobid, g.workload, w.namespace, w.queue, g.granted_at, g.released_at, g.freed_at, jsonb_array_length(g.shares),
           fluxqueue.amounts_of(g.shares), w.account, w.submitted_by, fluxqueue.rates_until(g.rates, g.freed_at)
      FROM gone g
     CROSS JOIN LATERAL (SELECT namespace, queue, account, submitted_by FROM fluxqueue.workload WHERE workload.id = g.workload LIMIT 1) w
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS pruned FROM gone;

-- forget --
-- After their allocations. Each gets its record, and a row of history, where the jobspec of a cancelled one is kept: its user may resume it.
-- A cancelled workload that came back from history, and was not resumed, has a record already.
WITH old AS (
    SELECT w.id FROM fluxqueue.workload w
     WHERE w.finished_at < %(before)s AND (SELECT a.jobid FROM fluxqueue.allocation a WHERE a.workload = w.id LIMIT 1) IS NULL
     ORDER BY w.finished_at
     LIMIT %(limit)s
       FOR UPDATE OF w SKIP LOCKED
), gone AS (
    DELETE FROM fluxqueue.workload WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING *
), kept AS (
    INSERT INTO fluxqueue.history (
        id, uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed,
        release_mode, generation, state, reason, message, found_reason, found_message, submitted_at, promised_at, allocated_at,
        started_at, finished_at, outcome, requeues, jobid, hosts, account, submitted_by)
    SELECT id, uid, api_version, kind, namespace, name, queue, priority, CASE state WHEN 'Cancelled' THEN jobspec ELSE '' END, shape,
           pods, duration_s, duration_assumed, release_mode, generation, state, reason, message, found_reason, found_message,
           submitted_at, promised_at, allocated_at, started_at, finished_at, outcome, requeues, jobid, hosts, account, submitted_by
      FROM gone
), recorded AS (
    INSERT INTO fluxqueue.ended_workload (
        id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, message,
        submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, evictions, account, submitted_by)
    SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome,
           left(message, 300), submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts,
           CASE WHEN requeues > 0 THEN fluxqueue.evictions_of(id) END, account, submitted_by
      FROM gone
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS forgotten FROM gone;

-- record_resumed --
-- After remember, before resubmit: a cancelled workload ends once more. Its first end is recorded, or marked where it is recorded already.
INSERT INTO fluxqueue.ended_workload AS e (
    id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, message,
    submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, evictions, resumed, account,
    submitted_by)
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome,
       left(message, 300), submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts,
       CASE WHEN requeues > 0 THEN fluxqueue.evictions_of(id) END, true, account, submitted_by
  FROM fluxqueue.workload
 WHERE uid = ANY (%(uids)s::text[]) AND state = 'Cancelled'
ON CONFLICT (finished_at, id) DO UPDATE SET resumed = true;

-- remember --
-- Cancelled workloads come back from history.
WITH back AS (
    DELETE FROM fluxqueue.history WHERE uid = ANY (%(uids)s::text[]) AND state = 'Cancelled' AND jobspec <> '' RETURNING *
)
INSERT INTO fluxqueue.workload (
    id, uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed,
    release_mode, generation, state, reason, message, found_reason, found_message, submitted_at, promised_at, allocated_at,
    started_at, finished_at, outcome, requeues, jobid, hosts, account, submitted_by)
SELECT id, uid, api_version, kind, namespace, name, queue, priority, jobspec, shape, pods, duration_s, duration_assumed,
       release_mode, generation, state, reason, message, found_reason, found_message, submitted_at, promised_at, allocated_at,
       started_at, finished_at, outcome, requeues, jobid, hosts, account, submitted_by
  FROM back;

-- forgotten --
SELECT id, uid, finished_at
  FROM fluxqueue.history
 WHERE finished_at < %(before)s AND (finished_at, id) > (%(after_at)s, %(after_id)s)
 ORDER BY finished_at, id
 LIMIT %(limit)s;

-- prune_transitions --
WITH gone AS (
    DELETE FROM fluxqueue.transition
     WHERE ctid = ANY (ARRAY(
         SELECT t.place
           FROM unnest(%(ids)s::bigint[]) AS ended (id) CROSS JOIN LATERAL (
               SELECT ctid AS place FROM fluxqueue.transition WHERE workload = ended.id AND at < %(before)s LIMIT %(limit)s) t
          LIMIT %(limit)s))
    RETURNING id
)
SELECT count(*) AS pruned FROM gone;

-- prune_history --
-- After prune_transitions: a row stays until its last transition is deleted.
DELETE FROM fluxqueue.history h
 WHERE h.id = ANY (%(ids)s::bigint[])
   AND (SELECT t.id FROM fluxqueue.transition t WHERE t.workload = h.id LIMIT 1) IS NULL
RETURNING h.id;
