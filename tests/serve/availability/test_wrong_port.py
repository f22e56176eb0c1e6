"""A client where nothing listens: it says so at once, unless it has reached the service before."""

import threading
import time

import pytest

from deferkit import Client, ServiceUnavailable
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
