-- charge_accounts --
-- An allocation counts from its grant until it is freed. What was used at a time t counts 2^(-(now - t) / half-life) now. The integral of
-- that is exact, so how often this runs does not matter. Exponents are bounded: a double of Postgres refuses to underflow.
WITH clock AS MATERIALIZED (
    SELECT GREATEST(%(now)s::timestamptz, last.charged_until) AS now, COALESCE(last.charged_until, '-infinity') AS since
      FROM (SELECT max(charged_until) AS charged_until FROM fluxqueue.fair_share) AS last
), price AS (
    SELECT * FROM unnest(%(types)s::text[], %(weights)s::double precision[]) AS p (type, weight)
), present AS (
    SELECT workload, granted_at, freed_at, shares FROM fluxqueue.allocation WHERE freed_at IS NULL
    UNION ALL
    SELECT workload, granted_at, freed_at, shares FROM fluxqueue.allocation
     WHERE freed_at IS NOT NULL AND freed_at > (SELECT since FROM clock)
), spent AS (
    SELECT w.account, sum(r.rate * t.weighted_s) AS use
      FROM clock c CROSS JOIN present a JOIN fluxqueue.workload w ON w.id = a.workload
     CROSS JOIN LATERAL (
           SELECT COALESCE(sum(x.value::double precision * p.weight), 0) AS rate
             FROM jsonb_each_text(fluxqueue.amounts_of(a.shares)) AS x JOIN price p ON p.type = x.key) AS r
     CROSS JOIN LATERAL (
           SELECT LEAST(GREATEST(EXTRACT(epoch FROM c.now - GREATEST(a.granted_at, c.since)) / %(half_life_s)s, 0), 200)::double precision AS began,
                  LEAST(GREATEST(EXTRACT(epoch FROM c.now - LEAST(COALESCE(a.freed_at, c.now), c.now)) / %(half_life_s)s, 0), 200)
                  ::double precision AS ended) AS e
     CROSS JOIN LATERAL (
           SELECT GREATEST(%(half_life_s)s / ln(2.0::double precision) * (power(0.5::double precision, e.ended) - power(0.5::double precision, e.began)), 0)
                  AS weighted_s) AS t
     WHERE w.account <> ''
     GROUP BY w.account
), charged AS (
    SELECT COALESCE(f.account, s.account) AS account,
           COALESCE(f.use * power(0.5::double precision,
                                  LEAST(GREATEST(EXTRACT(epoch FROM c.now - f.charged_until) / %(half_life_s)s, 0), 200)::double precision), 0)
           + COALESCE(s.use, 0) AS use, c.now
      FROM clock c CROSS JOIN (fluxqueue.fair_share f FULL JOIN spent s ON s.account = f.account)
     WHERE COALESCE(f.account, s.account) <> ''
    UNION ALL
    SELECT '', 0, now FROM clock
)
INSERT INTO fluxqueue.fair_share (account, use, charged_until)
SELECT account, use, now FROM charged ORDER BY account
ON CONFLICT (account) DO UPDATE SET use = EXCLUDED.use, charged_until = EXCLUDED.charged_until
RETURNING account, use;

-- charge_users --
-- As charge_accounts, for each user of the accounts whose work is shared among users. The row '' of an account has until when its users
-- have been charged; an account without it is charged for all allocations that are known.
WITH clock AS MATERIALIZED (
    SELECT a.account, GREATEST(%(now)s::timestamptz, f.charged_until) AS now, COALESCE(f.charged_until, '-infinity') AS since
      FROM unnest(%(accounts)s::text[]) AS a (account) LEFT JOIN fluxqueue.user_share f ON f.account = a.account AND f.username = ''
), price AS (
    SELECT * FROM unnest(%(types)s::text[], %(weights)s::double precision[]) AS p (type, weight)
), spent AS (
    SELECT w.account,
           CASE WHEN w.submitted_by = '' OR w.submitted_by LIKE ANY (%(programs)s::text[]) THEN %(programs_of)s::text || w.namespace
                ELSE w.submitted_by END AS username,
           sum(r.rate * t.weighted_s) AS use
      FROM clock c JOIN fluxqueue.workload w ON w.account = c.account
      JOIN fluxqueue.allocation a ON a.workload = w.id AND (a.freed_at IS NULL OR a.freed_at > c.since)
     CROSS JOIN LATERAL (
           SELECT COALESCE(sum(x.value::double precision * p.weight), 0) AS rate
             FROM jsonb_each_text(fluxqueue.amounts_of(a.shares)) AS x JOIN price p ON p.type = x.key) AS r
     CROSS JOIN LATERAL (
           SELECT LEAST(GREATEST(EXTRACT(epoch FROM c.now - GREATEST(a.granted_at, c.since)) / %(half_life_s)s, 0), 200)::double precision AS began,
                  LEAST(GREATEST(EXTRACT(epoch FROM c.now - LEAST(COALESCE(a.freed_at, c.now), c.now)) / %(half_life_s)s, 0), 200)
                  ::double precision AS ended) AS e
     CROSS JOIN LATERAL (
           SELECT GREATEST(%(half_life_s)s / ln(2.0::double precision) * (power(0.5::double precision, e.ended) - power(0.5::double precision, e.began)), 0)
                  AS weighted_s) AS t
     GROUP BY 1, 2
), known AS (
    SELECT f.account, f.username,
           f.use * power(0.5::double precision,
                         LEAST(GREATEST(EXTRACT(epoch FROM c.now - f.charged_until) / %(half_life_s)s, 0), 200)::double precision) AS use
      FROM clock c JOIN fluxqueue.user_share f ON f.account = c.account
     WHERE f.username <> ''
), charged AS (
    SELECT account, username, sum(use) AS use FROM (SELECT * FROM known UNION ALL SELECT * FROM spent) AS all_use GROUP BY 1, 2
    UNION ALL
    SELECT account, '', 0 FROM clock
)
INSERT INTO fluxqueue.user_share (account, username, use, charged_until)
SELECT charged.account, charged.username, charged.use, c.now FROM charged JOIN clock c ON c.account = charged.account ORDER BY 1, 2
ON CONFLICT (account, username) DO UPDATE SET use = EXCLUDED.use, charged_until = EXCLUDED.charged_until
RETURNING account, username, use;

-- forget_users --
DELETE FROM fluxqueue.user_share WHERE account <> ALL (%(accounts)s::text[]) OR (use < 1 AND username <> '');

-- forget_use --
DELETE FROM fluxqueue.fair_share WHERE use < 1 AND account <> '';

-- spent_in_periods --
SELECT p.budget, d.type, sum(d.use) AS use
  FROM unnest(%(budgets)s::text[], %(accounts)s::text[], %(starts)s::date[]) AS p (budget, account, start)
  JOIN fluxqueue.account_day d ON d.account = p.account AND d.day >= p.start
 GROUP BY p.budget, d.type;

-- forget_days --
-- The longest period is a year; a budget that is edited to one finds its use.
DELETE FROM fluxqueue.account_day WHERE day < (%(now)s::timestamptz AT TIME ZONE 'UTC')::date - 800;
