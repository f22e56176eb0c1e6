-- Decisions that hold budget, for those whose deadline has passed: their seats may all be done or closed by then.
CREATE INDEX decisions_open ON decisions (policy, task) WHERE state = 'open';
DROP INDEX seats_by_deadline;
