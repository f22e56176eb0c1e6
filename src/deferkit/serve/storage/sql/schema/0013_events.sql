-- Each event once, and a small row for each webhook that is told of it. Processes of the version before go on to write
-- `deliveries`; whoever owns the policy moves those here.
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    policy BIGINT NOT NULL REFERENCES policies (id) ON DELETE CASCADE,
    event TEXT NOT NULL,
    body BYTEA NOT NULL,
    created BIGINT NOT NULL,
    kept BIGINT NOT NULL           -- rows of event_deliveries; at 0 the event is deleted
);
CREATE INDEX events_of_policy ON events (policy, created);
CREATE INDEX events_unused ON events (id) WHERE kept <= 0;

CREATE TABLE event_deliveries (
    webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    created BIGINT NOT NULL,
    id TEXT NOT NULL,              -- of the event
    policy BIGINT NOT NULL REFERENCES policies (id) ON DELETE CASCADE,
    due BIGINT NOT NULL,           -- the next attempt
    -- waiting → delivered | dead
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'dead')),
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    status BIGINT,                 -- of the last reply
    error TEXT,
    ended BIGINT,
    PRIMARY KEY (webhook, created, id),
    CHECK ((state = 'waiting') = (ended IS NULL))
);
CREATE INDEX event_deliveries_due ON event_deliveries (webhook, due, id) WHERE state = 'waiting';
CREATE INDEX event_deliveries_of_policy ON event_deliveries (policy, state, created);
CREATE INDEX event_deliveries_ended ON event_deliveries (state, ended) WHERE ended IS NOT NULL;
-- Events that were given up because too many waited.
ALTER TABLE webhooks ADD COLUMN dropped BIGINT NOT NULL DEFAULT 0;
