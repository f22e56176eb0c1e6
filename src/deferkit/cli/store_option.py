"""The option `--store` of commands on a store of the service."""

from typing import Annotated

import typer

Store = Annotated[
    str | None, typer.Option(help="A file (SQLite) or a postgresql:// URL [default: $DEFERKIT_STORE or deferkit.db]")
]
