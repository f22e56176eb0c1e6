"""HTTPS by the service itself: for clients, browsers, and its own processes."""

import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

import deferkit
from deferkit.errors import DeferkitError, InvalidArgument, ServiceUnavailable
from deferkit.serve.http.server import check_certificate
from deferkit.serve.service_settings import ServiceSettings
from tests.serve.harness.clients import CERTIFICATE, TIMEOUT_S
from tests.serve.harness.fault_injection import url_of
from tests.serve.harness.in_process import POLICY, Running, running
from tests.serve.harness.service_process import free_port

TLS: dict[str, Any] = {"tls_cert": str(CERTIFICATE)}


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATE)


def call(service: Running, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPSConnection(
        service.url.removeprefix("https://"), timeout=TIMEOUT_S, context=trusting()
    )
    connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def test_a_service_with_a_certificate_speaks_https_alone(tmp_path: Path) -> None:
    with running(tmp_path, **TLS, body_timeout_s=1.0) as service:
        assert service.url.startswith("https://127.0.0.1:")
        with deferkit.Client(service.url, policy="p", ssl_context=trusting()) as client:
            client.create(features=2, budget=deferkit.Budget(10, horizon=100, max_cost=1))
            assert client.decide([1.0, 0.5]).route in ("model", "human")
        with (
            deferkit.Client(service.url, policy="p", total_s=2) as stranger,
            pytest.raises(ServiceUnavailable, match="not trusted"),
        ):
            stranger.summary()
        host, _, port = service.url.removeprefix("https://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP/1.1 200")


def test_the_cookie_of_a_session_is_sent_over_tls_alone(tmp_path: Path) -> None:
    with running(tmp_path, **TLS) as service:
        cookie = call(service, "POST", "/v1/session", {"reviewer": "ann"}).headers["set-cookie"]
        assert cookie.endswith("; Secure")
        assert call(service, "GET", "/console").status == 200


def test_a_slow_request_is_ended_over_tls_too(tmp_path: Path) -> None:
    with running(tmp_path, **TLS, body_timeout_s=0.2) as service:
        host, _, port = service.url.removeprefix("https://").rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as bare,
            trusting().wrap_socket(bare, server_hostname=host) as secure,
        ):
            secure.sendall(b"POST /v1/policies HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
            assert secure.recv(1000).startswith(b"HTTP/1.1 408")


def test_processes_pass_calls_on_over_tls(tmp_path: Path, postgres_url: str) -> None:
    store, ports = url_of(postgres_url), (free_port(), free_port())
    given: list[dict[str, Any]] = [
        {"store": store, **TLS, "port": port, "address": f"https://127.0.0.1:{port}"} for port in ports
    ]
    with running(tmp_path, **given[0]) as owner, running(tmp_path, **given[1]) as other:
        assert call(owner, "POST", "/v1/policies", POLICY).status == 201
        task = {"task": "t", "context": [1.0, 0.5], "force": "human"}
        assert call(other, "POST", "/v1/policies/p/decisions", task).status == 201
        assert call(other, "GET", "/v1/policies/p/series?buckets=2").status == 200


def test_a_certificate_that_cannot_be_used_is_told_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(DeferkitError, match="cannot be used: No such file"):
        check_certificate(str(tmp_path / "nope.pem"), "")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    with pytest.raises(DeferkitError, match="cannot be used"):
        check_certificate(str(wrong), "")
    with pytest.raises(DeferkitError, match="--tls-cert"):
        check_certificate("", str(CERTIFICATE))
    check_certificate(str(CERTIFICATE), str(CERTIFICATE))


def test_the_address_of_a_process_has_its_scheme() -> None:
    assert ServiceSettings(address="https://a:1", tls_cert="c.pem").address == "https://a:1"
    with pytest.raises(InvalidArgument, match="begins with http://"):
        ServiceSettings(address="https://a:1")
    with pytest.raises(InvalidArgument, match="begins with https://"):
        ServiceSettings(address="http://a:1", tls_cert="c.pem")
