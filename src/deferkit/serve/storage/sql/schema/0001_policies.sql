-- Policies, their accounts, their log. Both databases read these files; types are PostgreSQL's.
CREATE TABLE policies (
    id BIGINT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    seq BIGINT NOT NULL,           -- records in its log
    head BYTEA NOT NULL,           -- hash of the last one
    created BIGINT NOT NULL,
    owner TEXT,                    -- the process that may write it …
    address TEXT,                  -- … and where that answers
    epoch BIGINT NOT NULL,         -- counts owners; checked in every transaction
    expires BIGINT NOT NULL,
    parked BIGINT NOT NULL DEFAULT 0 CHECK (parked >= 0),
    UNIQUE (tenant, name)
);

CREATE TABLE budgets (
    policy BIGINT NOT NULL REFERENCES policies (id),
    resource TEXT NOT NULL,
    total BIGINT CHECK (total >= 0),  -- NULL: without end
    reserved BIGINT NOT NULL CHECK (reserved >= 0),
    posted BIGINT NOT NULL CHECK (posted >= 0),
    suspense BIGINT NOT NULL CHECK (suspense >= 0),
    PRIMARY KEY (policy, resource),
    CHECK (reserved + posted <= total),
    CHECK (suspense = 0 OR reserved + posted = total)
);

CREATE TABLE log (
    policy BIGINT NOT NULL REFERENCES policies (id),
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    task TEXT,
    body BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    PRIMARY KEY (policy, seq)
);
CREATE INDEX log_of_task ON log (policy, task, seq);

CREATE TABLE decisions (
    policy BIGINT NOT NULL REFERENCES policies (id),
    task TEXT NOT NULL CHECK (length(task) BETWEEN 1 AND 128),
    id BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    reply BYTEA NOT NULL,
    at BIGINT NOT NULL,
    route TEXT NOT NULL,
    -- model | open → posted, open → void, void → posted (a late cost)
    state TEXT NOT NULL CHECK (state IN ('model', 'open', 'posted', 'void')),
    held TEXT,
    rewards TEXT NOT NULL,
    cost TEXT,
    final TEXT,
    answer TEXT,
    told TEXT NOT NULL,            -- what the learner was told of: deciders, and $cost
    PRIMARY KEY (policy, task),
    CHECK (state <> 'posted' OR cost IS NOT NULL)
);

CREATE TABLE parked (
    policy BIGINT NOT NULL REFERENCES policies (id),
    task TEXT NOT NULL,
    body BYTEA NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (policy, task)
);

CREATE TABLE requests (
    policy BIGINT NOT NULL REFERENCES policies (id),
    request TEXT NOT NULL,
    digest BYTEA NOT NULL,
    reply BYTEA NOT NULL,
    PRIMARY KEY (policy, request)
);

CREATE TABLE snapshots (
    policy BIGINT NOT NULL REFERENCES policies (id),
    seq BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (policy, seq)
);
