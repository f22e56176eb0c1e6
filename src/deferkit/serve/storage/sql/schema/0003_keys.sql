-- Who may call: keys of tenants, hashed.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    hash BYTEA NOT NULL,
    scopes TEXT NOT NULL,
    name TEXT NOT NULL,
    created BIGINT NOT NULL,
    revoked BIGINT
);
CREATE INDEX keys_of_tenant ON keys (tenant);
