"""Storage: a database protocol, implemented for SQLite and PostgreSQL, with one set of SQL for both."""
