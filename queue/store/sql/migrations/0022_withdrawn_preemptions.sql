-- Preempted work goes on if nobody needs its nodes any more before it was to stop.
ALTER TABLE fluxqueue.transition
    DROP CONSTRAINT transition_allowed,
    ADD CONSTRAINT transition_allowed CHECK (COALESCE(before, '') || '>' || after IN (
        '>Pending',
        'Pending>Allocated', 'Pending>Completed', 'Pending>Failed', 'Pending>Cancelled',
        'Allocated>Running', 'Allocated>Draining', 'Allocated>Pending',
        'Allocated>Completed', 'Allocated>Failed', 'Allocated>Cancelled',
        'Running>Draining', 'Running>Completed', 'Running>Failed', 'Running>Cancelled',
        'Draining>Pending', 'Draining>Allocated', 'Draining>Running',
        'Draining>Completed', 'Draining>Failed', 'Draining>Cancelled',
        'Cancelled>Pending'));

-- The transitions by which a workload lost its nodes. A preemption that was withdrawn took none.
CREATE FUNCTION fluxqueue.losses_of(p_workload bigint) RETURNS SETOF fluxqueue.transition
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT t.*
      FROM fluxqueue.transition t
     WHERE t.workload = p_workload AND t.reason <> ''
       AND ((t.before = 'Allocated' AND t.after = 'Pending')
            OR (t.after = 'Draining'
                AND COALESCE((SELECT n.after FROM fluxqueue.transition n WHERE n.workload = p_workload AND n.id > t.id ORDER BY n.id LIMIT 1),
                             '') NOT IN ('Allocated', 'Running')))
$$;

-- The last hundred times that a workload lost its nodes: when, and why.
CREATE OR REPLACE FUNCTION fluxqueue.evictions_of(p_workload bigint) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT jsonb_agg(jsonb_build_object(
               'at', to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'reason', t.reason,
               'message', left(t.detail, 300)) ORDER BY t.id)
      FROM (SELECT id, at, reason, detail FROM fluxqueue.losses_of(p_workload) ORDER BY id DESC LIMIT 100) AS t
$$;
