"""The domain model, without a database: money, accounts, policies, log records, seats of reviewers."""
