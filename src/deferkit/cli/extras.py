"""Commands that need an optional part of deferkit say so in one line."""

import importlib.util

from deferkit.errors import DeferkitError

SERVICE = ("litestar", "msgspec", "uvicorn", "httptools", "apsw", "prometheus_client")


def needs_serve() -> None:
    """Raise if what the service is made of is not installed."""
    missing = [name for name in SERVICE if importlib.util.find_spec(name) is None]
    if missing:
        raise DeferkitError(f"The service needs {', '.join(missing)}: pip install 'deferkit[serve]'.")
