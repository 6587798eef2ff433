-- What each user of an account has used whose work is shared among users: as fluxqueue.fair_share for accounts (docs/accounts.md).
-- The row '' of an account has no use: until when its users have been charged is in it.
CREATE TABLE fluxqueue.user_share (
    account       text NOT NULL,
    username      text NOT NULL,
    use           double precision NOT NULL CHECK (use >= 0),
    charged_until timestamptz NOT NULL,
    PRIMARY KEY (account, username)
);
