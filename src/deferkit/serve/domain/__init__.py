"""What the service knows without a database: money, accounts, policies, their log, seats of reviewers."""
