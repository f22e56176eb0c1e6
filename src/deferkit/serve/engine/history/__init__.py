"""The history of a policy for people: figures folded from its log, kept in memory, brought up to date when asked."""
