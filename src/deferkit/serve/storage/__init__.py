"""Where everything is kept: one protocol, SQLite and PostgreSQL, one set of SQL for both."""
