-- What each account has used, in weighted resource-seconds, halved with the half-life of queue.config.fairShare (docs/accounts.md).
-- The row '' has no use: until when accounts have been charged is in it, also when no other row is left.
CREATE TABLE fluxqueue.fair_share (
    account       text PRIMARY KEY,
    use           double precision NOT NULL CHECK (use >= 0),
    charged_until timestamptz NOT NULL
);
