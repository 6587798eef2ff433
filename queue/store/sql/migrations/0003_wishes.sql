-- What a person asked of a workload by editing its FluxJob, as far as it was taken in: it outlives the FluxJob, which comes back.
ALTER TABLE fluxqueue.workload ADD COLUMN wishes jsonb NOT NULL DEFAULT '{}';
-- History has the same columns in the same order.
ALTER TABLE fluxqueue.history ADD COLUMN wishes jsonb NOT NULL DEFAULT '{}';
