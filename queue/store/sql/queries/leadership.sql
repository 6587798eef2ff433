-- set_transaction --
-- First statement of every transaction behind a pooler, where no session has settings of ours.
SELECT set_config(setting.name, setting.value, true) FROM unnest(%(names)s::text[], %(values)s::text[]) AS setting (name, value);

-- hold_epoch --
-- The fence: first statement of every change.
SELECT fluxqueue.hold_epoch(%(epoch)s);

-- queue_up_to_lead --
-- New leaders of all shards come one after the other, so no two choose the same epoch.
SELECT pg_advisory_xact_lock(hashtextextended('fluxqueue take-over', 0));

-- shut_out_former_leader --
-- Waits for its changes that have begun. Later ones wait for this lock, and then find their epoch stale.
SELECT pg_advisory_xact_lock(hashtextextended('fluxqueue leader ' || %(shard)s, 0));

-- end_stalled_changes --
-- A process that was frozen between two messages of a transaction keeps its lock, and no time-out of an idle transaction applies to it.
SELECT count(pg_terminate_backend(held.pid)) AS ended
  FROM pg_locks AS held
  JOIN pg_stat_activity AS of ON of.pid = held.pid
 WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1 AND held.pid <> pg_backend_pid()
   AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (held.classid::bigint << 32 | held.objid::bigint) = hashtextextended('fluxqueue leader ' || %(shard)s, 0)
   AND of.xact_start < clock_timestamp() - %(stalled_s)s * interval '1 second';

-- raise_epoch --
INSERT INTO fluxqueue.leader AS l (shard, epoch, holder, acquired_at)
SELECT %(shard)s,
       GREATEST((SELECT max(epoch) + 1 FROM fluxqueue.leader), floor(extract(epoch FROM clock_timestamp()))::bigint),
       %(holder)s,
       %(now)s::timestamptz
ON CONFLICT (shard) DO UPDATE
   SET epoch = EXCLUDED.epoch, holder = EXCLUDED.holder, acquired_at = EXCLUDED.acquired_at
RETURNING l.epoch;

-- now --
SELECT fluxqueue.clock() AS now;

-- read_clocks --
-- Postgres' own clock, and the last time that any leader is known to have seen.
SELECT clock_timestamp() AS postgres,
       GREATEST((SELECT max(clock_seen) FROM fluxqueue.leader),
                (SELECT at FROM fluxqueue.transition ORDER BY id DESC LIMIT 1)) AS seen;

-- keep_clock --
-- Functions of the tables, and leaders of the version before, read the time as Postgres' clock and what the leader's is ahead of it.
UPDATE fluxqueue.leader l
   SET clock_ahead = CASE WHEN abs(EXTRACT(epoch FROM ahead.present - l.clock_ahead)) > 1 THEN ahead.present ELSE l.clock_ahead END,
       clock_seen = GREATEST(l.clock_seen, %(time)s::timestamptz)
  FROM (SELECT %(time)s::timestamptz - clock_timestamp() AS present) AS ahead
 WHERE l.epoch = %(epoch)s;
