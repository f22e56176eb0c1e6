-- The hash of what a reviewer proves a claim with, and the reviewer that a key is for; NULL: from before, or anybody.
ALTER TABLE claims ADD COLUMN token BYTEA;
ALTER TABLE keys ADD COLUMN reviewer TEXT;
