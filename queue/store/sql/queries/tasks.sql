-- stalled_tasks --
SELECT job.id,
       job.task_name AS task,
       COALESCE((SELECT max(event.at) FROM procrastinate.procrastinate_events event
                  WHERE event.job_id = job.id AND event.type = 'started'), clock_timestamp()) AS started_at
  FROM procrastinate.procrastinate_jobs job
 WHERE job.status = 'doing' AND job.args->>'shard' = %(shard)s
 ORDER BY job.id;

-- requeue_tasks --
-- A new row under a new id instead of status todo: the acknowledgement of a process that had the old one finds nothing to delete.
WITH stopped AS (
    DELETE FROM procrastinate.procrastinate_jobs
     WHERE status = 'doing' AND id = ANY (%(tasks)s::bigint[])
    RETURNING queue_name, task_name, priority, lock, queueing_lock, args
), again AS (
    INSERT INTO procrastinate.procrastinate_jobs (queue_name, task_name, priority, lock, queueing_lock, args)
    SELECT queue_name, task_name, priority, lock, queueing_lock, args FROM stopped
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
)
SELECT count(*) AS stopped FROM stopped;

-- requeue_tasks_of_shard --
WITH stopped AS (
    DELETE FROM procrastinate.procrastinate_jobs
     WHERE status = 'doing' AND args->>'shard' = %(shard)s
    RETURNING queue_name, task_name, priority, lock, queueing_lock, args
)
INSERT INTO procrastinate.procrastinate_jobs (queue_name, task_name, priority, lock, queueing_lock, args)
SELECT queue_name, task_name, priority, lock, queueing_lock, args FROM stopped
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;
