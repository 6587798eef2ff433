-- Accounting: what is kept of work when its rows are pruned, and views of it (docs/accounting.md). Both tables have a partition for each
-- month (UTC), so that a month is removed without a deletion. They have no constraints of words: an old row keeps the words of its time.

-- The first start that was planned for a workload: its reservation is deleted when it starts. History has the same columns in the same order.
ALTER TABLE fluxqueue.workload ADD COLUMN promised_at timestamptz;
ALTER TABLE fluxqueue.history ADD COLUMN promised_at timestamptz;

-- One row for each end of a workload. resumed: it was cancelled, and its user resumed it, so that it ends once more.
CREATE TABLE fluxqueue.ended_workload (
    id               bigint NOT NULL,
    uid              text NOT NULL,
    api_version      text NOT NULL,
    kind             text NOT NULL,
    namespace        text NOT NULL,
    name             text NOT NULL,
    queue            text NOT NULL,
    priority         bigint NOT NULL,
    pods             integer NOT NULL,
    duration_s       bigint,
    duration_assumed boolean NOT NULL,
    state            text NOT NULL,
    outcome          text NOT NULL,
    message          text NOT NULL,
    submitted_at     timestamptz NOT NULL,
    promised_at      timestamptz,
    allocated_at     timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz NOT NULL,
    requeues         integer NOT NULL,
    jobid            bigint,
    hosts            text NOT NULL,
    evictions        jsonb,
    resumed          boolean NOT NULL DEFAULT false,
    PRIMARY KEY (finished_at, id)
) PARTITION BY RANGE (finished_at);
CREATE INDEX ended_workload_namespace ON fluxqueue.ended_workload (namespace, finished_at);

-- One row for each allocation: what it had of nodes, from when to when. amounts: cpu in millicores, memory in MiB, all else in pieces.
CREATE TABLE fluxqueue.ended_allocation (
    jobid       bigint NOT NULL,
    workload    bigint NOT NULL,
    namespace   text NOT NULL,
    queue       text NOT NULL,
    granted_at  timestamptz NOT NULL,
    released_at timestamptz,
    freed_at    timestamptz NOT NULL,
    nodes       integer NOT NULL,
    amounts     jsonb NOT NULL,
    PRIMARY KEY (freed_at, jobid)
) PARTITION BY RANGE (freed_at);
CREATE INDEX ended_allocation_workload ON fluxqueue.ended_allocation (workload);

-- Make the partitions from the oldest end that is not recorded yet to the next month. Statements that write a record begin with this. A
-- partition is attached, not created in place: that waits for no reader.
CREATE FUNCTION fluxqueue.make_months() RETURNS void
    LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now   timestamptz := fluxqueue.clock();
    v_month timestamp := date_trunc('month', LEAST(
        v_now,
        (SELECT min(w.finished_at) FROM fluxqueue.workload w WHERE w.finished_at IS NOT NULL),
        (SELECT min(a.freed_at) FROM fluxqueue.allocation a WHERE a.freed_at IS NOT NULL)) AT TIME ZONE 'UTC');
    v_table text;
    v_part  text;
BEGIN
    WHILE v_month <= v_now AT TIME ZONE 'UTC' + interval '1 month' LOOP
        FOREACH v_table IN ARRAY ARRAY['ended_workload', 'ended_allocation'] LOOP
            v_part := v_table || to_char(v_month, '_YYYY_MM');
            IF to_regclass('fluxqueue.' || v_part) IS NULL THEN
                PERFORM pg_advisory_xact_lock(hashtextextended('fluxqueue months', 0));
                IF to_regclass('fluxqueue.' || v_part) IS NULL THEN
                    EXECUTE format('CREATE TABLE fluxqueue.%I (LIKE fluxqueue.%I INCLUDING DEFAULTS)', v_part, v_table);
                    EXECUTE format('ALTER TABLE fluxqueue.%I ATTACH PARTITION fluxqueue.%I FOR VALUES FROM (%L) TO (%L)', v_table, v_part,
                                   v_month AT TIME ZONE 'UTC', (v_month + interval '1 month') AT TIME ZONE 'UTC');
                END IF;
            END IF;
        END LOOP;
        v_month := v_month + interval '1 month';
    END LOOP;
END
$$;

-- Take months off the records that lie more than p_keep whole months back, and return their tables. With p_drop they are dropped, else
-- they remain as tables of their own, named after the time. A reader that keeps a month busy delays this to the next call.
CREATE FUNCTION fluxqueue.expire_months(p_keep integer, p_drop boolean) RETURNS SETOF text
    LANGUAGE plpgsql VOLATILE
    SET lock_timeout = '2s'
AS $$
DECLARE
    v_first text := to_char(date_trunc('month', fluxqueue.clock() AT TIME ZONE 'UTC') - make_interval(months => p_keep), 'YYYY_MM');
    v_table text;
    v_part  text;
    v_kept  text;
BEGIN
    FOR v_table, v_part IN
        SELECT p.relname, c.relname
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
         WHERE i.inhparent IN ('fluxqueue.ended_workload'::regclass, 'fluxqueue.ended_allocation'::regclass)
           AND right(c.relname, 7) < v_first
         ORDER BY c.relname
    LOOP
        BEGIN
            EXECUTE format('ALTER TABLE fluxqueue.%I DETACH PARTITION fluxqueue.%I', v_table, v_part);
            IF p_drop THEN
                EXECUTE format('DROP TABLE fluxqueue.%I', v_part);
                RETURN NEXT v_part;
            ELSE
                v_kept := v_part || to_char(fluxqueue.clock() AT TIME ZONE 'UTC', '"_detached_"YYYYMMDD_HH24MISS_US');
                EXECUTE format('ALTER TABLE fluxqueue.%I RENAME TO %I', v_part, v_kept);
                RETURN NEXT v_kept;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            RETURN;
        END;
    END LOOP;
END
$$;

-- The sum over all nodes of what an allocation has.
CREATE FUNCTION fluxqueue.amounts_of(p_shares jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT COALESCE(jsonb_object_agg(total.type, total.amount), '{}')
      FROM (SELECT a.key AS type, sum(a.value::bigint) AS amount
              FROM jsonb_array_elements(p_shares) AS share, jsonb_each_text(share -> 'amounts') AS a
             GROUP BY a.key) AS total
$$;

-- The last hundred times that a workload lost its nodes: when, and why.
CREATE FUNCTION fluxqueue.evictions_of(p_workload bigint) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT jsonb_agg(jsonb_build_object(
               'at', to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'reason', t.reason,
               'message', left(t.detail, 300)) ORDER BY t.id)
      FROM (SELECT id, at, reason, detail
              FROM fluxqueue.transition
             WHERE workload = p_workload AND reason <> '' AND (after = 'Draining' OR (before = 'Allocated' AND after = 'Pending'))
             ORDER BY id DESC
             LIMIT 100) AS t
$$;

SELECT fluxqueue.make_months();

-- ---- views -----------------------------------------------------------------------------------------------------------------------------
-- One transaction reads the clock several times: times of one change may differ by microseconds, which the second in the comparisons covers.

CREATE VIEW fluxqueue.jobs AS
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, reason, message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts,
       CASE WHEN requeues > 0 THEN fluxqueue.evictions_of(id) END AS evictions, false AS resumed
  FROM fluxqueue.workload
UNION ALL
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, '', message,
       submitted_at, promised_at, allocated_at, started_at, finished_at, requeues, jobid, hosts, evictions, resumed
  FROM fluxqueue.ended_workload;

CREATE VIEW fluxqueue.allocations AS
SELECT a.jobid, a.workload, w.namespace, w.queue, a.granted_at, a.released_at, a.freed_at, jsonb_array_length(a.shares) AS nodes,
       fluxqueue.amounts_of(a.shares) AS amounts
  FROM fluxqueue.allocation a JOIN fluxqueue.workload w ON w.id = a.workload
UNION ALL
SELECT jobid, workload, namespace, queue, granted_at, released_at, freed_at, nodes, amounts
  FROM fluxqueue.ended_allocation;

CREATE VIEW fluxqueue.use_by_day AS
SELECT d.day::date AS day, a.namespace, a.queue, count(DISTINCT a.workload) AS jobs,
       sum(a.nodes * s.seconds) AS node_s,
       sum(COALESCE((a.amounts ->> 'cpu')::double precision, 0) / 1000 * s.seconds) AS cpu_s,
       sum(COALESCE((a.amounts ->> 'memory')::double precision, 0) / 1024 * s.seconds) AS memory_gib_s,
       sum(COALESCE(g.gpus, 0) * s.seconds) AS gpu_s
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
 GROUP BY d.day, a.namespace, a.queue;

CREATE VIEW fluxqueue.waits AS
SELECT id, kind, namespace, name, queue, priority, submitted_at, allocated_at, started_at,
       EXTRACT(epoch FROM COALESCE(allocated_at, finished_at, now()) - submitted_at)::double precision AS wait_s,
       EXTRACT(epoch FROM started_at - allocated_at)::double precision AS start_s,
       CASE WHEN finished_at > started_at THEN
            GREATEST(1, EXTRACT(epoch FROM finished_at - submitted_at)::double precision
                        / GREATEST(10, EXTRACT(epoch FROM finished_at - started_at)::double precision)) END AS bounded_slowdown
  FROM fluxqueue.jobs;

CREATE VIEW fluxqueue.efficiency AS
SELECT j.id, j.kind, j.namespace, j.name, j.queue, j.outcome, j.finished_at, j.duration_s, j.run_s,
       j.run_s / j.duration_s AS duration_used, u.node_s, j.run_s * u.last_nodes / NULLIF(u.node_s, 0) AS run_share
  FROM (SELECT id, kind, namespace, name, queue, outcome, submitted_at, finished_at, duration_s, jobid,
               EXTRACT(epoch FROM finished_at - started_at)::double precision AS run_s
          FROM fluxqueue.jobs
         WHERE finished_at IS NOT NULL AND started_at IS NOT NULL) AS j
 CROSS JOIN LATERAL (
       SELECT sum(a.nodes * EXTRACT(epoch FROM a.freed_at - a.granted_at)::double precision) AS node_s,
              max(a.nodes) FILTER (WHERE a.jobid = j.jobid) AS last_nodes
         FROM fluxqueue.allocations a
        WHERE a.workload = j.id AND a.granted_at >= j.submitted_at - interval '1 second'
          AND a.freed_at <= j.finished_at + interval '1 second') AS u;

CREATE VIEW fluxqueue.evictions AS
SELECT j.id, j.kind, j.namespace, j.name, j.queue, j.priority, e.at, e.reason, e.message, l.nodes AS lost_nodes, l.node_s AS lost_node_s
  FROM fluxqueue.jobs j
 CROSS JOIN LATERAL jsonb_to_recordset(j.evictions) AS e (at timestamptz, reason text, message text)
  LEFT JOIN LATERAL (
       SELECT a.nodes, a.nodes * EXTRACT(epoch FROM a.freed_at - a.granted_at)::double precision AS node_s
         FROM fluxqueue.allocations a
        WHERE a.workload = j.id AND a.granted_at <= e.at AND a.freed_at >= e.at - interval '1 second'
        ORDER BY a.granted_at DESC
        LIMIT 1) AS l ON true;

CREATE VIEW fluxqueue.preemptions AS
SELECT id, kind, namespace, name, queue, priority, at, message, lost_nodes, lost_node_s
  FROM fluxqueue.evictions
 WHERE reason = 'Preempted';

CREATE VIEW fluxqueue.estimate_errors AS
SELECT id, kind, namespace, name, queue, submitted_at, promised_at, allocated_at, started_at, finished_at, duration_s, duration_assumed,
       EXTRACT(epoch FROM allocated_at - promised_at)::double precision AS start_error_s,
       EXTRACT(epoch FROM finished_at - started_at)::double precision - duration_s AS duration_error_s
  FROM fluxqueue.jobs
 WHERE (allocated_at IS NOT NULL AND promised_at IS NOT NULL)
    OR (finished_at IS NOT NULL AND started_at IS NOT NULL AND duration_s IS NOT NULL);

-- Work that was forgotten before this version, as far as it is known.
INSERT INTO fluxqueue.ended_workload (
    id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, message,
    submitted_at, allocated_at, started_at, finished_at, requeues, jobid, hosts)
SELECT id, uid, api_version, kind, namespace, name, queue, priority, pods, duration_s, duration_assumed, state, outcome, message,
       submitted_at, allocated_at, started_at, finished_at, requeues, jobid, hosts
  FROM fluxqueue.history
 WHERE finished_at >= date_trunc('month', fluxqueue.clock() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
