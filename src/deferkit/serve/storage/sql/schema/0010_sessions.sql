-- Sessions of browsers: the hash of what the cookie holds, and the key that a session was opened with ('': without keys).
CREATE TABLE sessions (
    id BYTEA PRIMARY KEY,
    key TEXT NOT NULL,
    tenant TEXT NOT NULL,
    reviewer TEXT,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    revoked BIGINT
);
CREATE INDEX sessions_of_key ON sessions (key, created);
