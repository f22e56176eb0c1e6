-- Keys that expire, and when each was last used (to about a minute).
-- Reading tasks and logs needs the scope 'read' from here on: keys from before keep what they could do.
ALTER TABLE keys ADD COLUMN expires BIGINT;
ALTER TABLE keys ADD COLUMN last_used BIGINT;
UPDATE keys SET scopes = scopes || ' read';
