-- last_run_times --
-- Rows that ended lately are in the table of workloads, older ones in that of the accounting.
SELECT submitter, account, queue, run_s
  FROM (SELECT submitter, account, queue, run_s, finished_at,
               row_number() OVER (PARTITION BY submitter, account, queue ORDER BY finished_at DESC) AS newest
          FROM (SELECT CASE WHEN submitted_by <> '' THEN submitted_by ELSE %(programs_of)s || namespace END AS submitter, account, queue,
                       EXTRACT(epoch FROM finished_at - started_at)::double precision AS run_s, finished_at
                  FROM ((SELECT submitted_by, namespace, account, queue, started_at, finished_at FROM fluxqueue.workload
                          WHERE finished_at IS NOT NULL AND started_at IS NOT NULL
                          ORDER BY finished_at DESC LIMIT %(limit)s)
                        UNION ALL
                        (SELECT submitted_by, namespace, account, queue, started_at, finished_at FROM fluxqueue.ended_workload
                          WHERE started_at IS NOT NULL
                          ORDER BY finished_at DESC LIMIT %(limit)s)) AS ended) AS ran) AS counted
 WHERE newest <= 2
 ORDER BY finished_at;
