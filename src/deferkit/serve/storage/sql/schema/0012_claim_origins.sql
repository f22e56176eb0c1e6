-- The session in which a claim was made, or the key with which it was made without one; NULL: from before.
ALTER TABLE claims ADD COLUMN origin TEXT;
