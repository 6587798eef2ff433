-- What must have happened before a workload may start, as far as the queue has seen it: dependencies, the earliest start, the singleton.
ALTER TABLE fluxqueue.workload ADD COLUMN start_conditions jsonb NOT NULL DEFAULT '{}';
-- History has the same columns in the same order.
ALTER TABLE fluxqueue.history ADD COLUMN start_conditions jsonb NOT NULL DEFAULT '{}';
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'WaitingForNodes', 'BlockedByReservation',
        'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency', 'DependencyNeverSatisfied', 'WaitingForBegin',
        'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted', 'InvalidRequest', 'QueueNotAllowed',
        'Provisioning'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'WaitingForNodes', 'BlockedByReservation',
        'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency', 'DependencyNeverSatisfied', 'WaitingForBegin',
        'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted', 'InvalidRequest', 'QueueNotAllowed',
        'Provisioning'));

-- The view of 0013, which knows the new reasons.
CREATE OR REPLACE VIEW fluxqueue.river_job AS
SELECT w.id,
       (CASE w.state
             WHEN 'Completed' THEN 'completed'
             WHEN 'Failed' THEN 'discarded'
             WHEN 'Cancelled' THEN 'cancelled'
             WHEN 'Pending' THEN
                 CASE WHEN w.reason IN ('Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'Unsatisfiable', 'WaitingForGroup',
                                        'WaitingForVolumes', 'WaitingForDependency', 'DependencyNeverSatisfied', 'WaitingForBegin',
                                        'InvalidRequest', 'QueueNotAllowed') THEN 'pending'
                      WHEN b.not_before > now() THEN 'retryable'
                      WHEN r.current_at > now() THEN 'scheduled'
                      ELSE 'available' END
             ELSE 'running' END)::fluxqueue.river_job_state AS state,
       LEAST(w.requeues + CASE WHEN w.allocated_at IS NULL THEN 0 ELSE 1 END, 32767)::smallint AS attempt,
       32767::smallint AS max_attempts,
       w.allocated_at AS attempted_at,
       w.submitted_at AS created_at,
       w.finished_at AS finalized_at,
       CASE WHEN w.state = 'Pending' AND b.not_before > now() THEN b.not_before
            WHEN w.state = 'Pending' AND r.current_at > now() THEN r.current_at
            ELSE w.submitted_at END AS scheduled_at,
       (2 - sign(w.priority))::smallint AS priority,
       jsonb_build_object('api_version', w.api_version, 'namespace', w.namespace, 'name', w.name, 'uid', w.uid, 'pods', w.pods,
                          'duration_s', w.duration_s, 'priority', w.priority) AS args,
       CASE WHEN w.hosts <> '' THEN ARRAY[w.hosts] END AS attempted_by,
       fluxqueue.river_errors(CASE WHEN w.requeues > 0 THEN fluxqueue.evictions_of(w.id) END, w.state, left(w.message, 300), w.finished_at,
                              w.requeues, w.requeues + CASE WHEN w.allocated_at IS NULL THEN 0 ELSE 1 END) AS errors,
       w.kind,
       jsonb_build_object('state', w.state, 'reason', w.reason, 'message', left(w.message, 300), 'outcome', w.outcome, 'jobid', w.jobid,
                          'started_at', w.started_at) AS metadata,
       COALESCE(NULLIF(w.queue, ''), 'default') AS queue,
       ARRAY[w.namespace, lower(w.kind)]::varchar(255)[] AS tags,
       convert_to(w.uid, 'UTF8') AS unique_key,
       NULL::bit(8) AS unique_states
  FROM fluxqueue.workload w
  LEFT JOIN fluxqueue.reservation r ON r.workload = w.id
 CROSS JOIN LATERAL (SELECT (w.requeue_state ->> 'not_before')::timestamptz AS not_before) AS b
UNION ALL
SELECT e.id,
       (CASE e.state WHEN 'Completed' THEN 'completed' WHEN 'Failed' THEN 'discarded' ELSE 'cancelled' END)::fluxqueue.river_job_state,
       LEAST(e.requeues + CASE WHEN e.allocated_at IS NULL THEN 0 ELSE 1 END, 32767)::smallint,
       32767::smallint,
       e.allocated_at,
       e.submitted_at,
       e.finished_at,
       e.submitted_at,
       (2 - sign(e.priority))::smallint,
       jsonb_build_object('api_version', e.api_version, 'namespace', e.namespace, 'name', e.name, 'uid', e.uid, 'pods', e.pods,
                          'duration_s', e.duration_s, 'priority', e.priority),
       CASE WHEN e.hosts <> '' THEN ARRAY[e.hosts] END,
       fluxqueue.river_errors(e.evictions, e.state, e.message, e.finished_at, e.requeues,
                              e.requeues + CASE WHEN e.allocated_at IS NULL THEN 0 ELSE 1 END),
       e.kind,
       jsonb_build_object('state', e.state, 'reason', '', 'message', e.message, 'outcome', e.outcome, 'jobid', e.jobid,
                          'started_at', e.started_at),
       COALESCE(NULLIF(e.queue, ''), 'default'),
       ARRAY[e.namespace, lower(e.kind)]::varchar(255)[],
       convert_to(e.uid, 'UTF8'),
       NULL::bit(8)
  FROM fluxqueue.ended_workload e
 WHERE NOT e.resumed
UNION ALL
SELECT -t.id,
       (CASE t.status::text
             WHEN 'todo' THEN CASE WHEN t.scheduled_at > now() AND t.attempts > 0 THEN 'retryable'
                                   WHEN t.scheduled_at > now() THEN 'scheduled'
                                   ELSE 'available' END
             WHEN 'succeeded' THEN 'completed'
             WHEN 'failed' THEN 'discarded'
             WHEN 'cancelled' THEN 'cancelled'
             WHEN 'aborted' THEN 'cancelled'
             ELSE 'running' END)::fluxqueue.river_job_state,
       LEAST(t.attempts + CASE WHEN t.status::text = 'doing' THEN 1 ELSE 0 END, 32767)::smallint,
       32767::smallint,
       v.started_at,
       COALESCE(v.created_at, t.scheduled_at, now()),
       CASE WHEN t.status::text IN ('succeeded', 'failed', 'cancelled', 'aborted') THEN COALESCE(v.last_at, now()) END,
       COALESCE(t.scheduled_at, v.created_at, now()),
       (2 - sign(t.priority))::smallint,
       t.args,
       NULL::text[],
       NULL::jsonb[],
       t.task_name::text,
       jsonb_build_object('status', t.status),
       t.queue_name::text,
       ARRAY['control-task']::varchar(255)[],
       convert_to(t.queueing_lock, 'UTF8'),
       NULL::bit(8)
  FROM procrastinate.procrastinate_jobs t
 CROSS JOIN LATERAL (
       SELECT min(at) AS created_at, max(at) AS last_at, max(at) FILTER (WHERE type = 'started') AS started_at
         FROM procrastinate.procrastinate_events
        WHERE job_id = t.id) AS v;
