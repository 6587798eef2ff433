-- A cancelled Job that its user resumes waits once more.
ALTER TABLE fluxqueue.transition
    DROP CONSTRAINT transition_allowed,
    ADD CONSTRAINT transition_allowed CHECK (COALESCE(before, '') || '>' || after IN (
        '>Pending',
        'Pending>Allocated', 'Pending>Completed', 'Pending>Failed', 'Pending>Cancelled',
        'Allocated>Running', 'Allocated>Draining', 'Allocated>Pending',
        'Allocated>Completed', 'Allocated>Failed', 'Allocated>Cancelled',
        'Running>Draining', 'Running>Completed', 'Running>Failed', 'Running>Cancelled',
        'Draining>Pending', 'Draining>Completed', 'Draining>Failed', 'Draining>Cancelled',
        'Cancelled>Pending'));
