-- reserve --
-- Only pending workloads have a planned start. The first start stays what it was.
INSERT INTO fluxqueue.reservation AS r (workload, jobid, first_at, current_at, ends_at, shares, cause)
SELECT f.workload, f.jobid, f.first_at, f.current_at, f.ends_at, f.shares, f.cause
  FROM unnest(%(workloads)s::bigint[], %(jobids)s::bigint[], %(firsts)s::timestamptz[], %(starts)s::timestamptz[],
              %(ends)s::timestamptz[], %(shares)s::jsonb[], %(causes)s::text[])
       AS f (workload, jobid, first_at, current_at, ends_at, shares, cause)
  JOIN fluxqueue.workload w ON w.id = f.workload AND w.state = 'Pending'
ON CONFLICT (workload) DO UPDATE
   SET jobid = EXCLUDED.jobid, current_at = EXCLUDED.current_at, ends_at = EXCLUDED.ends_at, shares = EXCLUDED.shares,
       cause = EXCLUDED.cause
RETURNING workload, first_at;

-- unreserve --
DELETE FROM fluxqueue.reservation WHERE workload = ANY (%(workloads)s::bigint[]);

-- reservations --
SELECT r.workload, r.jobid, r.first_at, r.current_at, r.ends_at, r.shares, r.cause
  FROM fluxqueue.reservation r JOIN fluxqueue.workload w ON w.id = r.workload
 WHERE w.state = 'Pending'
 ORDER BY r.current_at, r.workload;
