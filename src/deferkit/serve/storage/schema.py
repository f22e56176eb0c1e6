"""Whether a database is a store of deferkit: by its application id, or by its tables."""

import re

import apsw

from deferkit.errors import DeferkitError
from deferkit.serve.storage import queries

APPLICATION_ID = 0x44464B54  # "DFKT", in the header of an SQLite file
COLUMNS = """
    SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'
"""

Columns = set[tuple[str, str]]
"""Tables and their columns."""


def columns_at(version: int) -> Columns:
    """Return the tables and columns of a store of this version of the schema.

    >>> ("policies", "tenant") in columns_at(1), columns_at(0)
    (True, set())
    """
    connection = apsw.Connection(":memory:")
    try:
        for step in queries.migrations()[:version]:
            connection.execute(step)
        return {(table, column) for table, column in connection.execute(COLUMNS)}
    finally:
        connection.close()


def table_names() -> list[str]:
    """Return the tables that a store of any version has had.

    >>> table_names()[:3]
    ['policies', 'budgets', 'log']
    """
    return [name for step in queries.migrations() for name in re.findall(r"CREATE TABLE (\w+)", step)]


def foreign_error(name: str) -> DeferkitError:
    """Return the error for a database of another program."""
    return DeferkitError(
        f"{name} has tables of another program, and is no store of deferkit. Nothing was changed in it: give the store"
        " another place."
    )
