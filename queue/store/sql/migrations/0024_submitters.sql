-- The name of a user has at most 1,024 bytes: it is in the key of fluxqueue.user_share, whose rows Postgres bounds. A longer one, which
-- earlier versions stored, counts as not known.
UPDATE fluxqueue.workload SET submitted_by = '' WHERE octet_length(submitted_by) > 1024;
UPDATE fluxqueue.history SET submitted_by = '' WHERE octet_length(submitted_by) > 1024;
ALTER TABLE fluxqueue.workload
    ADD CONSTRAINT workload_submitted_by_check CHECK (octet_length(submitted_by) <= 1024);
ALTER TABLE fluxqueue.history
    ADD CONSTRAINT workload_submitted_by_check CHECK (octet_length(submitted_by) <= 1024);
