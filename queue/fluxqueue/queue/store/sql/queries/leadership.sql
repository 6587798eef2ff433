-- hold_epoch --
-- The fence: first statement of every change.
SELECT fluxqueue.hold_epoch(%(epoch)s);

-- queue_up_to_lead --
-- Take-overs of all shards follow one another, so that no two choose the same epoch.
SELECT pg_advisory_xact_lock(hashtextextended('fluxqueue take-over', 0));

-- shut_out_former_leader --
-- Waits for its changes under way; those that come later wait for us, and then find their epoch stale.
SELECT pg_advisory_xact_lock(hashtextextended('fluxqueue leader ' || %(shard)s, 0));

-- raise_epoch --
INSERT INTO fluxqueue.leader AS l (shard, epoch, holder, acquired_at)
SELECT %(shard)s,
       GREATEST((SELECT max(epoch) + 1 FROM fluxqueue.leader), floor(extract(epoch FROM clock_timestamp()))::bigint),
       %(holder)s,
       clock_timestamp()
ON CONFLICT (shard) DO UPDATE
   SET epoch = EXCLUDED.epoch, holder = EXCLUDED.holder, acquired_at = EXCLUDED.acquired_at
RETURNING l.epoch;

-- current_epoch --
SELECT epoch FROM fluxqueue.leader WHERE shard = %(shard)s;

-- now --
SELECT clock_timestamp() AS now;
