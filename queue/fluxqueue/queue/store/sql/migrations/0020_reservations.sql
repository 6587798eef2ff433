-- The nodes that were chosen for a FluxReservation that asks for a number of nodes, by its uid.
CREATE TABLE fluxqueue.reserved_nodes (
    uid       text PRIMARY KEY,
    nodes     text[] NOT NULL,
    chosen_at timestamptz NOT NULL DEFAULT now()
);

-- Two more reasons, added to whichever there are: work waits for a FluxReservation, or may not use the one that it names. What may not is
-- pending in the view river_job, until somebody does something.
DO $$
DECLARE
    tab     text;
    reasons text;
BEGIN
    FOREACH tab IN ARRAY ARRAY['workload', 'history'] LOOP
        SELECT string_agg(found.value[1], ', ') INTO reasons
          FROM pg_constraint c,
               regexp_matches(pg_get_constraintdef(c.oid), '(''[^'']*'')::text', 'g') AS found (value)
         WHERE c.conname = 'workload_reason_check' AND c.conrelid = ('fluxqueue.' || tab)::regclass;
        EXECUTE format('ALTER TABLE fluxqueue.%I DROP CONSTRAINT workload_reason_check, ADD CONSTRAINT workload_reason_check '
                       'CHECK (reason IN (%s, ''Reservation'', ''ReservationNotAllowed''))', tab, reasons);
    END LOOP;
    EXECUTE 'CREATE OR REPLACE VIEW fluxqueue.river_job AS '
            || replace(pg_get_viewdef('fluxqueue.river_job'::regclass), '''QueueNotAllowed''::text',
                       '''QueueNotAllowed''::text, ''ReservationNotAllowed''::text');
END $$;
