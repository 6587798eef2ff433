-- remove_queues --
DELETE FROM fluxqueue.queue WHERE name <> ALL (%(names)s::text[]);

-- save_queues --
INSERT INTO fluxqueue.queue AS q (name, generation, spec, saved_at)
SELECT name, generation, spec, (SELECT clock_timestamp())
  FROM unnest(%(names)s::text[], %(generations)s::bigint[], %(specs)s::jsonb[]) AS f (name, generation, spec)
ON CONFLICT (name) DO UPDATE
   SET generation = EXCLUDED.generation, spec = EXCLUDED.spec, saved_at = EXCLUDED.saved_at
 WHERE (q.generation, q.spec) IS DISTINCT FROM (EXCLUDED.generation, EXCLUDED.spec);

-- queues --
SELECT name, generation, spec FROM fluxqueue.queue ORDER BY name;
