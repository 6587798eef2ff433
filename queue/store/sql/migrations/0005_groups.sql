-- Several pods that are matched as one unit, each of which takes a slot of its size. History has the same constraint.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_release_mode_check,
    ADD CONSTRAINT workload_release_mode_check CHECK (release_mode IN ('pin', 'gate', 'pod', 'group'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_release_mode_check,
    ADD CONSTRAINT workload_release_mode_check CHECK (release_mode IN ('pin', 'gate', 'pod', 'group'));
