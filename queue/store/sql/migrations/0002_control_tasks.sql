-- procrastinate's tables hold a handful of control tasks that come and go by the second: without statistics and vacuum its fetch query
-- slows down by orders of magnitude.
ALTER TABLE procrastinate.procrastinate_jobs SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE procrastinate.procrastinate_events SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 500,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE procrastinate.procrastinate_workers SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
ALTER TABLE procrastinate.procrastinate_periodic_defers SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);
