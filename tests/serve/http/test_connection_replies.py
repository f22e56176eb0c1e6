"""A reply on the wire: one write, and byte for byte what uvicorn's own cycle makes of the same messages."""

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from deferkit.serve.http.connection import RequestCycle

DEFAULT = [(b"x-content-type-options", b"nosniff")]
BODIES = st.lists(st.binary(max_size=20), min_size=1, max_size=4)


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def reply(
    kind: type[RequestResponseCycle], messages: list[dict[str, Any]], method: str = "GET", keep_alive: bool = True
) -> tuple[Transport, str | None]:
    """Return what a cycle writes for an application's messages, and what it raises."""
    transport: Any = Transport()

    async def run() -> str | None:
        logger = logging.getLogger("uvicorn.error")
        cycle = kind(
            {"method": method},  # type: ignore[typeddict-item]
            transport,
            FlowControl(transport),
            logger,
            logger,
            access_log=False,
            default_headers=DEFAULT,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=lambda: None,
        )
        try:
            for message in messages:
                await cycle.send(message)  # type: ignore[arg-type]
        except RuntimeError as error:
            return str(error)
        return None

    raised = asyncio.run(run())
    return transport, raised


def messages_of(status: int, headers: list[tuple[bytes, bytes]], bodies: list[bytes]) -> list[dict[str, Any]]:
    parts = [{"type": "http.response.body", "body": body, "more_body": True} for body in bodies]
    parts[-1]["more_body"] = False
    return [{"type": "http.response.start", "status": status, "headers": headers}, *parts]


@given(
    status=st.sampled_from([200, 201, 204, 304, 413, 503]),
    bodies=BODIES,
    sized=st.booleans(),
    extra=st.lists(
        st.sampled_from(
            [
                (b"Content-Type", b"application/json"),
                (b"connection", b"close"),
                (b"Connection", b"keep-alive, Close"),
                (b"transfer-encoding", b"chunked"),
            ]
        ),
        unique=True,
        max_size=2,
    ),
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    keep_alive=st.booleans(),
)
def test_the_bytes_are_those_of_uvicorn(
    status: int,
    bodies: list[bytes],
    sized: bool,
    extra: list[tuple[bytes, bytes]],
    method: str,
    keep_alive: bool,
) -> None:
    size = (b"content-length", b"%d" % sum(map(len, bodies)))
    messages = messages_of(status, [*([size] if sized else []), *extra], bodies)
    ours, raised = reply(RequestCycle, messages, method, keep_alive)
    theirs, expected = reply(RequestResponseCycle, messages, method, keep_alive)
    assert raised == expected
    if expected is None:  # else uvicorn has written the head by then
        assert (b"".join(ours.writes), ours.closed) == (b"".join(theirs.writes), theirs.closed)
    assert len(ours.writes) <= len(bodies)  # the head is never a write of its own


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([{"type": "http.response.body", "body": b""}], "Expected ASGI message 'http.response.start'"),
        (messages_of(200, [(b"content-length", b"3")], [b"12"]), "shorter than Content-Length"),
        (messages_of(200, [(b"content-length", b"1")], [b"12"]), "longer than Content-Length"),
        (messages_of(200, [], [b"", b"a"])[:1] * 2, "Expected ASGI message 'http.response.body'"),
        ([*messages_of(200, [], [b"a"]), {"type": "http.response.body"}], "after response already completed"),
        (messages_of(200, [(b"location", b"/\r\nset-cookie: a=b")], [b""]), "Invalid HTTP header value"),
        (messages_of(200, [(b"x:", b"")], [b""]), "Invalid HTTP header name"),
    ],
)
def test_messages_that_are_no_reply_raise_as_they_do_in_uvicorn(messages: list[dict[str, Any]], error: str) -> None:
    for kind in (RequestCycle, RequestResponseCycle):
        raised = reply(kind, messages)[1]
        assert raised is not None
        assert error in raised
