-- The nodes that were chosen for a FluxReservation that asks for a number of nodes, by its uid.
CREATE TABLE fluxqueue.reserved_nodes (
    uid       text PRIMARY KEY,
    nodes     text[] NOT NULL,
    chosen_at timestamptz NOT NULL DEFAULT now()
);

-- Two more reasons: work waits for a FluxReservation, or may not use the one that it names.
ALTER TABLE fluxqueue.workload
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Reservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'ReservationNotAllowed', 'Provisioning', 'TimeLimit', 'DeadlineUnreachable'));
ALTER TABLE fluxqueue.history
    DROP CONSTRAINT workload_reason_check,
    ADD CONSTRAINT workload_reason_check CHECK (reason IN (
        '', 'Held', 'UserSuspended', 'QueueHeld', 'UnknownQueue', 'QueueLimit', 'AccountLimit', 'WaitingForNodes',
        'BlockedByReservation', 'Reservation', 'Unsatisfiable', 'WaitingForGroup', 'WaitingForVolumes', 'WaitingForDependency',
        'DependencyNeverSatisfied', 'WaitingForBegin', 'NodesUnavailable', 'ReleaseFailed', 'BindFailed', 'StartTimeout', 'Preempted',
        'InvalidRequest', 'QueueNotAllowed', 'ReservationNotAllowed', 'Provisioning', 'TimeLimit', 'DeadlineUnreachable'));

-- What may not use its reservation is pending in the view river_job, until somebody does something: one more word in the list of 0014.
DO $$
BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW fluxqueue.river_job AS '
            || replace(pg_get_viewdef('fluxqueue.river_job'::regclass), '''QueueNotAllowed''::text',
                       '''QueueNotAllowed''::text, ''ReservationNotAllowed''::text');
END $$;
