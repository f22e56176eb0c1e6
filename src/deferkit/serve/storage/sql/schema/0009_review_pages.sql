-- Who does not want a task, and why: it is not offered to the same reviewer again.
CREATE TABLE declines (
    policy BIGINT NOT NULL REFERENCES policies (id),
    task TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    seat BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    at BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (policy, task, reviewer)
);
CREATE INDEX declines_of_reviewer ON declines (policy, reviewer);
-- Whether a reviewer was shown the model's answer: 1, 0, or NULL for claims from before.
ALTER TABLE claims ADD COLUMN visible BIGINT;
CREATE INDEX claims_of_reviewer ON claims (policy, reviewer, at);
-- What a reviewer holds, and has answered.
CREATE INDEX seats_held ON seats (policy, reviewer) WHERE state IN ('claimed', 'done');
-- Decisions in the order in which they were taken, for listings.
CREATE INDEX decisions_by_id ON decisions (policy, id);
-- What retention is to erase.
CREATE INDEX seats_with_payload ON seats (policy, created) WHERE payload IS NOT NULL OR model_answer IS NOT NULL;
