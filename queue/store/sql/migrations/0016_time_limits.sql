-- Work that its queue ended at the end of its duration has an outcome of its own. When that was decided is in requeue_state.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_outcome_check,
    ADD CONSTRAINT workload_outcome_check CHECK (outcome IN ('', 'Succeeded', 'Failed', 'Cancelled', 'TimeLimit', 'Unknown'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_outcome_check,
    ADD CONSTRAINT workload_outcome_check CHECK (outcome IN ('', 'Succeeded', 'Failed', 'Cancelled', 'TimeLimit', 'Unknown'));
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning', 'TimeLimit'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning', 'TimeLimit'));
