-- Nothing reads or writes the table of FluxQueues: the leader's watch has them. No allocation was ever an extension of another.
DROP TABLE fluxqueue.queue;
ALTER TABLE fluxqueue.allocation
    DROP CONSTRAINT allocation_kind_check,
    ADD CONSTRAINT allocation_kind_check CHECK (kind IN ('grant', 'remnant'));
