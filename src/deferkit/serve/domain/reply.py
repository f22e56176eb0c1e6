"""The reply to a call."""

from typing import NamedTuple


class Reply(NamedTuple):
    """An HTTP status and the bytes of a JSON document."""

    status: int
    body: bytes
