-- Who parked an outcome: each API key has its share of the room. '' is everyone without a key, and all from before.
ALTER TABLE parked ADD COLUMN key TEXT NOT NULL DEFAULT '';
CREATE INDEX parked_of_key ON parked (policy, key, at, task);
