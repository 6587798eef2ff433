-- The FluxAccount that a workload belongs to; empty: none. A leader of the version before inserts rows without it, and the intake of the
-- next one fills it in while they wait.
ALTER TABLE fluxqueue.workload ADD COLUMN account text NOT NULL DEFAULT '';
-- History has the same columns in the same order.
ALTER TABLE fluxqueue.history ADD COLUMN account text NOT NULL DEFAULT '';
ALTER TABLE fluxqueue.ended_workload ADD COLUMN account text NOT NULL DEFAULT '';
ALTER TABLE fluxqueue.ended_allocation ADD COLUMN account text NOT NULL DEFAULT '';
-- Work waits for a limit of its account, which the view river_job calls available, as it does a limit of the queue.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning'));

-- The views of 0012, with the account as their last column.
CREATE OR REPLACE VIEW fluxqueue.jobs AS
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, reason, message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts,
       CASE WHEN requeues > 0 THEN fluxqueue.evictions_of(id) END AS evictions, false AS resumed, account
  FROM fluxqueue.workload
UNION ALL
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, '', message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, evictions, resumed, account
  FROM fluxqueue.ended_workload;

CREATE OR REPLACE VIEW fluxqueue.allocations AS
SELECT a.jobid, a.workload, w.namespace, w.queue, a.granted_at, a.released_at, a.freed_at, jsonb_array_length(a.shares) AS nodes,
       fluxqueue.amounts_of(a.shares) AS amounts, w.account
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
UNION ALL
SELECT jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts, account
  FROM fluxqueue.ended_allocation;

CREATE OR REPLACE VIEW fluxqueue.use_by_day AS
SELECT d.day::date AS day, a.namespace, a.queue, count(DISTINCT a.workload) AS jobs,
       sum(a.nodes * s.seconds) AS node_s,
       sum(COALESCE((a.amounts ->> 'cpu')::double precision, 0) / 1000 * s.seconds) AS cpu_s,
       sum(COALESCE((a.amounts ->> 'memory')::double precision, 0) / 1024 * s.seconds) AS memory_gib_s,
       sum(COALESCE(g.gpus, 0) * s.seconds) AS gpu_s,
       a.account
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
 GROUP BY d.day, a.namespace, a.queue, a.account;
