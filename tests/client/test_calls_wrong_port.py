"""A client with a wrong address: it says so at once, unless it has reached the service before."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from deferkit import Client, ServiceError, ServiceUnavailable
from tests.serve.harness.clients import Reply, ScriptedServer

SUMMARY = Reply(404, b'{"status": 404, "code": "unknown", "detail": "There is no policy."}')


def test_client_on_a_wrong_port_fails_within_two_seconds() -> None:
    with ScriptedServer(SUMMARY) as server:
        url = server.url
    began = time.monotonic()
    with Client(url, policy="p") as client, pytest.raises(ServiceUnavailable, match="refused.*`deferkit serve`"):
        client.summary()
    assert time.monotonic() - began < 2.0


def test_a_service_that_was_reached_is_waited_for_while_it_restarts() -> None:
    with ScriptedServer(SUMMARY) as server, Client(server.url, policy="p") as client:
        with pytest.raises(Exception, match="no policy"):
            client.summary()
        port = server.server_address[1]
    over = threading.Event()

    def restart() -> None:
        time.sleep(2.5)
        with ScriptedServer(SUMMARY, port=port):
            over.wait(60)

    restarting = threading.Thread(target=restart)
    restarting.start()
    began = time.monotonic()
    with client, pytest.raises(Exception, match="no policy"):
        client.summary()
    over.set()
    restarting.join()
    assert time.monotonic() - began > 2.0


@contextmanager
def banner_server(banner: bytes, port: int = 0) -> Iterator[int]:
    """Yield the port of a server that sends a banner to whoever connects, as SSH does, and ends with that."""
    with socket.create_server(("127.0.0.1", port)) as listening:

        def serve() -> None:
            with suppress(OSError):  # it was closed
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.sendall(banner)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65536):  # else what was sent may be lost with a reset
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def fails_within_two_seconds(url: str, match: str) -> None:
    began = time.monotonic()
    with Client(url, policy="p") as client, pytest.raises(ServiceUnavailable, match=match) as caught:
        client.summary()
    assert time.monotonic() - began < 2.0
    assert "\n" not in str(caught.value)


def unknown_name(host: str, *_: Any, **__: Any) -> None:
    assert host == "nobody.invalid"
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_unknown_host_name_fails_within_two_seconds(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown_name)
    said = rf"host name in {scheme}://nobody\.invalid:8080 cannot be resolved \(Name or service not known\)"
    fails_within_two_seconds(f"{scheme}://nobody.invalid:8080", said)


@pytest.mark.parametrize(
    "banner", [b"SSH-2.0-OpenSSH_9.2\r\n", b"-ERR unknown command\r\n", b"J\0\0\0\n8.0.36\0", b"x" * 100_000]
)
def test_a_port_of_another_protocol_fails_within_two_seconds(banner: bytes) -> None:
    with banner_server(banner) as port:
        fails_within_two_seconds(f"http://127.0.0.1:{port}", r"does not speak HTTP \(.*or https://\?")
        fails_within_two_seconds(f"https://127.0.0.1:{port}", r"does not speak HTTPS \(.*or http://\?")


def test_the_wrong_scheme_fails_within_two_seconds() -> None:
    with ScriptedServer(SUMMARY) as server:
        fails_within_two_seconds(server.url.replace("http:", "https:"), "does not speak HTTPS .*or http://")
    with ScriptedServer(SUMMARY, secure=True) as server:
        fails_within_two_seconds(server.url.replace("https:", "http:"), "closes connections .*or https://")


def test_another_protocol_where_a_service_was_reached_is_tried_again() -> None:
    with ScriptedServer(SUMMARY._replace(then_close=True)) as server:
        client = Client(server.url, policy="p", total_s=3.0)
        with pytest.raises(ServiceError, match="no policy"):
            client.summary()
    banner = b"SSH-2.0-OpenSSH_9.2\r\n"
    with client, banner_server(banner, server.server_address[1]), pytest.raises(ServiceUnavailable, match="within 3 s"):
        client.summary()


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("body", [b"<html>not found</html>", b"", b'{"detail": "Not Found"}', b"[]"])
def test_what_another_web_server_says_is_not_taken_for_the_services_reply(status: int, body: bytes) -> None:
    with ScriptedServer(Reply(status, body)) as server, Client(server.url, policy="p") as client:
        for call in (client.summary, lambda: client.observe("t", {"human": 1.0})):
            with pytest.raises(ServiceError, match=f"is not a deferkit service .status {status}") as caught:
                call()
            assert type(caught.value) is ServiceError
            assert caught.value.status == status
