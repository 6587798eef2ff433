-- What went wrong with a workload so far (starts that failed, nodes lost, when to try again, nodes to avoid), and which completion
-- indexes of its Job need no node any more.
ALTER TABLE fluxqueue.workload ADD COLUMN setbacks jsonb NOT NULL DEFAULT '{}', ADD COLUMN done_indexes text NOT NULL DEFAULT '';
-- History has the same columns in the same order.
ALTER TABLE fluxqueue.history ADD COLUMN setbacks jsonb NOT NULL DEFAULT '{}', ADD COLUMN done_indexes text NOT NULL DEFAULT '';
