"""ServiceSettings: each one documented, fixed, checked, and read from options before the environment."""

import inspect
import os
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from checks.service_tables import PAGE, place_of, routes_table, settings_table
from deferkit.cli.service import serve
from deferkit.errors import InvalidArgument
from deferkit.serve.domain.accounts import MAX_AMOUNT
from deferkit.serve.service_settings import PREFIX, ServiceSettings
from tests.serve.harness.clients import Client
from tests.serve.harness.service_process import ServiceProcess, command

GUIDE = PAGE.with_name("service-guide.md")
NAMES = [each.name for each in fields(ServiceSettings)]


@pytest.mark.parametrize("table", [settings_table, routes_table], ids=["settings", "routes"])
def test_the_page_has_every_setting_and_every_route(table: object) -> None:
    rows = table()  # type: ignore[operator]
    lines = PAGE.read_text().splitlines()
    assert rows[0] in lines, "\n".join(rows)
    assert lines[place_of(rows, lines)] == rows, "python -m checks.service_tables writes them"


def test_the_guide_has_the_largest_amount() -> None:
    assert f"an amount is at most {MAX_AMOUNT:,} with 6 decimals" in GUIDE.read_text()


def test_every_setting_is_an_option_with_its_default_in_the_help() -> None:
    options = inspect.signature(serve).parameters
    assert list(options) == NAMES
    for each in fields(ServiceSettings):
        text = options[each.name].annotation.__metadata__[0].help
        if type(each.default) is not str and each.default:
            assert f"[default: {each.default:g}]" in text.replace(",", "").replace("1000000", "1e+06"), each.name


def test_settings_are_fixed() -> None:
    with pytest.raises(FrozenInstanceError):
        ServiceSettings().port = 1  # type: ignore[misc]


def test_an_option_goes_before_the_environment() -> None:
    environment = {"DEFERKIT_PORT": "9000", "DEFERKIT_RATE": "2.5", "DEFERKIT_STORE": "a.db", "PORT": "1"}
    settings = ServiceSettings.from_environment(environment, port=9001, rate=None)
    assert (settings.port, settings.rate, settings.store, settings.queue_limit) == (9001, 2.5, "a.db", 1024)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_read_from_its_variable(name: str) -> None:
    default = getattr(ServiceSettings(), name)
    other = {"address": "http://a:1", "log_level": "error", "tenant_share": 0.25}.get(name)
    other = True if default is False else other or ("other" if isinstance(default, str) else default + 1)
    assert getattr(ServiceSettings.from_environment({PREFIX + name.upper(): str(other)}), name) == other


BAD = [
    (name, text)
    for name, texts in {
        "store": [""],
        "port": ["65536", "-1", "http", "80.5", ""],
        "address": ["here:80", "https://here"],
        "queue_limit": ["0", "1e3"],
        "tenant_share": ["0", "1.5", "nan"],
        "group_limit": ["0"],
        "rate": ["-1", "nan", "inf"],
        "max_policies": ["0"],
        "tenant_memory": ["0", "2.5"],
        "tenant_disk": ["-1", "2.5"],
        "webhook_backlog": ["0"],
        "max_claims": ["0"],
        "max_body": ["10", "1000000000"],
        "body_timeout_s": ["0", "inf"],
        "max_connections": ["0"],
        "max_connections_per_address": ["-1", "some"],
        "owner_lease_s": ["0", "x"],
        "max_clock_jump_s": ["-1", "inf", "nan"],
        "snapshot_every": ["0"],
        "stop_s": ["-1", "inf"],
        "log_level": ["loud", "INFO"],
        "access_log": ["maybe", ""],
    }.items()
    for text in texts
]


@pytest.mark.parametrize(("name", "text"), BAD, ids=[f"{name}={text}" for name, text in BAD])
def test_a_bad_value_is_told_in_one_line(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ServiceSettings.from_environment({PREFIX + name.upper(): text})
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert re.search(rf"'{name}'|{PREFIX}{name.upper()}", sentence)
    assert re.search(r" must be .* Got .* instead\.$", sentence)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost")],
        *[(host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "example.com", "localhost.example.com")],
    ],
)
def test_only_a_loopback_address_is_safe_without_keys(host: str, loopback: bool) -> None:
    assert ServiceSettings(host=host).loopback == loopback


def test_a_process_takes_settings_from_both(tmp_path: Path) -> None:
    environment = {"DEFERKIT_MAX_BODY": "2000", "DEFERKIT_RATE": "1", "DEFERKIT_HOST": "localhost"}
    assert "DEFERKIT_RATE" not in os.environ
    with ServiceProcess(tmp_path, "--rate", "1000", environment=environment) as served:
        client = Client(served.url)
        assert client.post("/v1/policies", {"name": "x" * 3000}).status == 413
        assert [client.get("/v1/policies").status for _ in range(5)] == [200] * 5
        client.connection.close()
        assert "There are no keys: everyone on this machine may call it." in served.log
        assert served.events()[-1]["open"] is True
        assert served.stop() == 0


def test_the_help_shows_what_a_setting_is_unless_given() -> None:
    shown = command("serve", "--help", environment={"COLUMNS": "200"}).stdout
    for each in ("[default: 8080]", "[default: 1,024]", "[default: 0.5]", "[default: info]"):
        assert each in shown
