-- ended_after --
-- The index on finished_at gives the order; ids decide between equal ends.
SELECT *
  FROM fluxqueue.workload
 WHERE finished_at >= %(at)s
   AND (finished_at, id) > (%(at)s, %(after)s::bigint)
   AND finished_at <= %(now)s::timestamptz - make_interval(secs => %(settled_s)s)
 ORDER BY finished_at, id
 LIMIT %(limit)s;

-- last_transitions --
SELECT t.workload, t.at, t.before, t.after, t.reason, t.detail, t.epoch
  FROM unnest(%(ids)s::bigint[]) AS w (id)
 CROSS JOIN LATERAL (
       SELECT * FROM fluxqueue.transition WHERE transition.workload = w.id ORDER BY transition.id DESC LIMIT %(limit)s) t
 ORDER BY t.workload, t.id;

-- releases --
SELECT workload, jobid, released_at
  FROM fluxqueue.allocation
 WHERE workload = ANY (%(ids)s::bigint[]) AND released_at IS NOT NULL
 ORDER BY released_at, jobid;
