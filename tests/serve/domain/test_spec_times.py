"""Times of budgets in requests: seconds since 1970, or a text with an offset; the log has seconds."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.serve.domain.spec import PolicyChange, PolicySpec, seconds_of
from deferkit.serve.engine.commands.policy import ChangePolicy
from deferkit.serve.engine.engine import Engine, EngineSettings
from deferkit.serve.http.strict_json import decode
from deferkit.serve.storage.database import Database
from tests.serve.harness.clients import Client
from tests.serve.harness.in_process import KEY, call, play, replayed, running

QUIET = EngineSettings(tick_s=1e9)
TEXT, SECONDS = "2036-12-31T18:00:00+01:00", datetime(2036, 12, 31, 17, tzinfo=UTC).timestamp()
LATER = datetime(2037, 1, 31, 17, tzinfo=UTC).timestamp()
EXPECTED = (
    "Expected seconds since 1970, or a date and time with an offset such as '2026-12-31T18:00:00+01:00' or '…Z' for"
)
WRONG = (
    "2036-12-31T18:00:00",
    "2036-12-31",
    "2036-12-31T18:00:00 Europe/Berlin",
    "31.12.2036 18:00",
    "2036-02-30T18:00:00Z",
    str(SECONDS),
    "tomorrow",
    "",
)


def body(name: str = "p", **budget: Any) -> dict[str, Any]:
    return {"name": name, "features": 2, "budget": {"cost": {"total": 5, "max_cost": 1} | budget}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service.client()


@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9998, 12, 30)),
    st.integers(-23 * 60, 23 * 60),
)
def test_a_text_is_the_moment_that_it_names(moment: datetime, minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert seconds_of("until", aware.isoformat()) == aware.timestamp()
    assert seconds_of("until", f"{moment.isoformat()}Z") == moment.replace(tzinfo=UTC).timestamp()


def test_ends_and_starts_are_given_as_text_or_as_seconds(client: Client) -> None:
    for name, until in (("text", TEXT), ("zulu", "2036-12-31T17:00:00Z"), ("seconds", SECONDS)):
        made = client.post("/v1/policies", body(name, until=until))
        assert (made.status, made.json["budget"]["cost"]["until"]) == (201, SECONDS)
    assert client.post("/v1/policies", body("text", until=SECONDS)).status == 201  # the same again
    changed = client.call(
        "PATCH", "/v1/policies/text", {"budget": {"cost": {"until": "2037-01-31T12:00:00.000-05:00"}}}
    )
    assert (changed.status, changed.json["budget"]["cost"]["until"]) == (200, LATER)
    made = client.post("/v1/policies", body("weekly", every="7d", start=TEXT))
    assert (made.status, made.json["budget"]["cost"]["start"]) == (201, SECONDS)


@pytest.mark.parametrize("text", WRONG)
def test_another_text_is_refused_in_one_line(client: Client, text: str) -> None:
    client.post("/v1/policies", body("dated", until=TEXT))
    for reply, field in (
        (client.post("/v1/policies", body("new", until=text)), "until"),
        (client.post("/v1/policies", body("new", every="7d", start=text)), "start"),
        (client.call("PATCH", "/v1/policies/dated", {"budget": {"cost": {"until": text}}}), "until"),
    ):
        assert reply.status == 422
        assert reply.json["detail"] == f"{EXPECTED} `{field}`, got {text!r} - at `$.budget[...]`."
    assert client.get("/v1/policies/dated").json["budget"]["cost"]["until"] == SECONDS


def test_what_is_no_time_is_refused(client: Client) -> None:
    client.post("/v1/policies", body("dated", until=TEXT))
    long = client.post("/v1/policies", body("new", until="x" * 5000)).json["detail"]
    assert len(long) < 300
    for until, said in (
        ([TEXT], "got `array` - at `$.budget[...].until`."),
        ("9999-12-31T23:59:59Z", "'until' of a Budget must be seconds since 1970"),
        ("2001-01-01T00:00:00Z", "The budget of cost would have ended on 2001-01-01 00:00 UTC"),
    ):
        for reply in (
            client.post("/v1/policies", body("new", until=until)),
            client.call("PATCH", "/v1/policies/dated", {"budget": {"cost": {"until": until}}}),
        ):
            assert reply.status == 422
            assert said in reply.json["detail"]


def test_the_log_has_seconds(database: Database) -> None:
    async def script(engine: Engine) -> None:
        change = b'{"budget": {"cost": {"until": "2037-01-31T17:00:00Z"}}}'
        await call(engine, ChangePolicy(decode(change, PolicyChange)))
        kept = [
            msgspec.json.decode(row.body)["spec"]["budget"]["cost"] for row in engine.store.log(engine.owned[KEY].id)
        ]
        assert [each["until"] for each in kept] == [SECONDS, LATER]
        assert replayed(engine.store) == engine.owned[KEY].policy

    spec = decode(msgspec.json.encode(body(until=TEXT)), PolicySpec)
    play(database, script, spec=spec, settings=QUIET)
