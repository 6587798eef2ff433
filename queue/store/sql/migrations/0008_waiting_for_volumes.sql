-- Work whose claims have no volume yet waits. History has the same constraint.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'WaitingForNodes', 'BlockedByReservation',
        'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed',
        'StartTimeout', 'Preempted', 'InvalidRequest', 'QueueNotAllowed', 'Provisioning'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'WaitingForNodes', 'BlockedByReservation',
        'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed',
        'StartTimeout', 'Preempted', 'InvalidRequest', 'QueueNotAllowed', 'Provisioning'));
