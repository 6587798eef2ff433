-- The columns have the names that the code has. A leader of an older version ends at its next write, and one of this version takes over.
ALTER TABLE fluxqueue.workload RENAME COLUMN wishes TO overrides;
ALTER TABLE fluxqueue.workload RENAME COLUMN setbacks TO requeue_state;
ALTER TABLE fluxqueue.history RENAME COLUMN wishes TO overrides;
ALTER TABLE fluxqueue.history RENAME COLUMN setbacks TO requeue_state;
