"""Headers of a request, as they came: a name is looked for without making a table of all of them."""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def header(scope: Mapping[str, Any], name: bytes) -> bytes:
    """Return a header; nothing if it was not sent, and nothing if it was sent twice with different values.

    >>> header({"headers": [(b"host", b"a"), (b"accept", b"*")]}, b"host")
    b'a'
    """
    found = b""
    for each, value in scope["headers"]:
        if each == name:
            if found and found != value:
                return b""
            found = value
    return found


@lru_cache(maxsize=64)
def is_this_machine(host: bytes) -> bool:
    """Whether a Host header names this machine by a name that nobody else can give it.

    >>> is_this_machine(b"localhost:8080"), is_this_machine(b"127.0.0.1"), is_this_machine(b"[::1]:80")
    (True, True, True)
    >>> is_this_machine(b"evil.example:8080"), is_this_machine(b"")
    (False, False)
    """
    name, _, port = host.decode("latin-1").rpartition(":")
    if not port.isdigit() or not name:
        name = host.decode("latin-1")
    name = name.removeprefix("[").removesuffix("]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
