-- Work that waits for nodes and will miss its deadline, which is in start_conditions. It is matched like other waiting work.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning', 'TimeLimit', 'DeadlineUnreachable'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'Provisioning', 'TimeLimit', 'DeadlineUnreachable'));
