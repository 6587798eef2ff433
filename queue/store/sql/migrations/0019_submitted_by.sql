-- The person who submitted a workload, as the API server names him (docs/decisions/0028); empty: not known. Workload and history have the
-- same columns in the same order.
ALTER TABLE fluxqueue.workload ADD COLUMN submitted_by text NOT NULL DEFAULT '';
ALTER TABLE fluxqueue.history ADD COLUMN submitted_by text NOT NULL DEFAULT '';
ALTER TABLE fluxqueue.ended_workload ADD COLUMN submitted_by text NOT NULL DEFAULT '';
ALTER TABLE fluxqueue.ended_allocation ADD COLUMN submitted_by text NOT NULL DEFAULT '';

-- The views, with the person as their last column; waits and efficiency gain the account too.
CREATE OR REPLACE VIEW fluxqueue.jobs AS
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, reason, message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts,
       CASE WHEN requeues > 0 THEN fluxqueue.evictions_of(id) END AS evictions, false AS resumed, account, submitted_by
  FROM fluxqueue.workload
UNION ALL
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, '', message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, evictions, resumed, account, submitted_by
  FROM fluxqueue.ended_workload;

CREATE OR REPLACE VIEW fluxqueue.allocations AS
SELECT a.jobid, a.workload, w.namespace, w.queue, a.granted_at, a.released_at, a.freed_at, jsonb_array_length(a.shares) AS nodes,
       fluxqueue.amounts_of(a.shares) AS amounts, w.account, w.submitted_by
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
UNION ALL
SELECT jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts, account, submitted_by
  FROM fluxqueue.ended_allocation;

CREATE OR REPLACE VIEW fluxqueue.use_by_day AS
SELECT d.day::date AS day, a.namespace, a.queue, count(DISTINCT a.workload) AS jobs,
       sum(a.nodes * s.seconds) AS node_s,
       sum(COALESCE((a.amounts ->> 'cpu')::double precision, 0) / 1000 * s.seconds) AS cpu_s,
       sum(COALESCE((a.amounts ->> 'memory')::double precision, 0) / 1024 * s.seconds) AS memory_gib_s,
       sum(COALESCE(g.gpus, 0) * s.seconds) AS gpu_s,
       a.account, a.submitted_by
  FROM fluxqueue.allocations a
 CROSS JOIN LATERAL generate_series(
       date_trunc('day', a.granted_at AT TIME ZONE 'UTC'), COALESCE(a.freed_at, now()) AT TIME ZONE 'UTC', interval '1 day')
       AS d (day)
 CROSS JOIN LATERAL (
       SELECT EXTRACT(epoch FROM LEAST(COALESCE(a.freed_at, now()) AT TIME ZONE 'UTC', d.day + interval '1 day')
                                 - GREATEST(a.granted_at AT TIME ZONE 'UTC', d.day))::double precision AS seconds) AS s
 CROSS JOIN LATERAL (
       SELECT sum(e.value::bigint) AS gpus FROM jsonb_each_text(a.amounts) AS e WHERE e.key LIKE '%:gpu') AS g
 WHERE s.seconds > 0
 GROUP BY d.day, a.namespace, a.queue, a.account, a.submitted_by;

CREATE OR REPLACE VIEW fluxqueue.waits AS
SELECT id, kind, namespace, name, queue, priority, submitted_at, allocated_at, started_at,
       EXTRACT(epoch FROM COALESCE(allocated_at, finished_at, now()) - submitted_at)::double precision AS wait_s,
       EXTRACT(epoch FROM started_at - allocated_at)::double precision AS start_s,
       CASE WHEN finished_at > started_at THEN
            GREATEST(1, EXTRACT(epoch FROM finished_at - submitted_at)::double precision
                        / GREATEST(10, EXTRACT(epoch FROM finished_at - started_at)::double precision)) END AS bounded_slowdown,
       account, submitted_by
  FROM fluxqueue.jobs;

CREATE OR REPLACE VIEW fluxqueue.efficiency AS
SELECT j.id, j.kind, j.namespace, j.name, j.queue, j.outcome, j.finished_at, j.duration_s, j.run_s,
       j.run_s / j.duration_s AS duration_used, u.node_s, j.run_s * u.last_nodes / NULLIF(u.node_s, 0) AS run_share,
       j.account, j.submitted_by
  FROM (SELECT id, kind, namespace, name, queue, outcome, submitted_at, finished_at, duration_s, jobid, account, submitted_by,
               EXTRACT(epoch FROM finished_at - started_at)::double precision AS run_s
          FROM fluxqueue.jobs
         WHERE finished_at IS NOT NULL AND started_at IS NOT NULL) AS j
 CROSS JOIN LATERAL (
       SELECT sum(a.nodes * EXTRACT(epoch FROM a.freed_at - a.granted_at)::double precision) AS node_s,
              max(a.nodes) FILTER (WHERE a.jobid = j.jobid) AS last_nodes
         FROM fluxqueue.allocations a
        WHERE a.workload = j.id AND a.granted_at >= j.submitted_at - interval '1 second'
          AND a.freed_at <= j.finished_at + interval '1 second') AS u;
