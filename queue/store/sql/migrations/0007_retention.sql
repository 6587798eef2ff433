-- What has ended is removed oldest first, a batch at a time: each batch finds its rows by an index, whatever the depth of the table.
CREATE INDEX allocation_freed ON fluxqueue.allocation (freed_at) WHERE freed_at IS NOT NULL;
CREATE INDEX history_finished ON fluxqueue.history (finished_at, id);
-- Rows leave these two tables every minute: what they held is to be used again before the tables grow.
ALTER TABLE fluxqueue.history SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 1000);
ALTER TABLE fluxqueue.transition SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000);
