-- The review queue: a seat for each reviewer that a task needs, and who has held it.
CREATE TABLE seats (
    policy BIGINT NOT NULL REFERENCES policies (id),
    task TEXT NOT NULL,
    seat BIGINT NOT NULL CHECK (seat >= 0),
    expert TEXT NOT NULL,
    -- waiting → claimed → done; claimed → waiting (released); waiting | claimed → closed
    state TEXT NOT NULL CHECK (state IN ('waiting', 'claimed', 'done', 'closed')),
    epoch BIGINT NOT NULL CHECK (epoch >= 0),
    reviewer TEXT,
    lease_until BIGINT NOT NULL,
    priority DOUBLE PRECISION NOT NULL,
    created BIGINT NOT NULL,
    deadline BIGINT,
    payload TEXT,
    model_answer TEXT,
    answer TEXT,
    rewards TEXT NOT NULL,
    cost TEXT,
    PRIMARY KEY (policy, task, seat),
    CHECK (state NOT IN ('claimed', 'done') OR reviewer IS NOT NULL)
);
-- nobody sits twice at one task
CREATE UNIQUE INDEX seats_of_reviewer ON seats (policy, task, reviewer) WHERE state IN ('claimed', 'done');
CREATE INDEX seats_to_claim ON seats (policy, priority DESC, created) WHERE state IN ('waiting', 'claimed');
CREATE INDEX seats_by_deadline ON seats (policy, deadline) WHERE state IN ('waiting', 'claimed') AND deadline IS NOT NULL;

CREATE TABLE claims (
    policy BIGINT NOT NULL REFERENCES policies (id),
    task TEXT NOT NULL,
    seat BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    reviewer TEXT NOT NULL,
    at BIGINT NOT NULL,
    effort TEXT,
    PRIMARY KEY (policy, task, seat, epoch)
);
