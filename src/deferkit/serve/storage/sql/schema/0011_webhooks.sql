-- Webhooks of tenants, and events on their way to them: written with what they tell of, delivered afterwards.
CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,          -- as it is: signatures are made with it
    events TEXT NOT NULL,          -- separated by spaces
    policies TEXT,                 -- names separated by spaces; NULL: all of the tenant
    models BIGINT NOT NULL CHECK (models IN (0, 1)),
    created BIGINT NOT NULL
);

CREATE TABLE deliveries (
    webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id TEXT NOT NULL,              -- of the event
    policy BIGINT NOT NULL REFERENCES policies (id),
    event TEXT NOT NULL,
    body BYTEA NOT NULL,
    created BIGINT NOT NULL,
    due BIGINT NOT NULL,           -- the next attempt
    -- waiting → delivered | dead
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'dead')),
    attempts BIGINT NOT NULL CHECK (attempts >= 0),
    status BIGINT,                 -- of the last reply
    error TEXT,
    ended BIGINT,
    PRIMARY KEY (webhook, id),
    CHECK ((state = 'waiting') = (ended IS NULL))
);
CREATE INDEX deliveries_due ON deliveries (webhook, due, id) WHERE state = 'waiting';
CREATE INDEX deliveries_of_policy ON deliveries (policy, state, created);
CREATE INDEX deliveries_ended ON deliveries (state, ended) WHERE ended IS NOT NULL;
CREATE INDEX deliveries_of_webhook ON deliveries (webhook, created);
