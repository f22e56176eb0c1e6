"""Figures of policies, for those who pay for them: as plain data, in the form of the service."""

import time
from collections.abc import Sequence
from typing import Any

from deferkit.client.calls import Calls
from deferkit.client.wire import names_of
from deferkit.errors import ServiceUnavailable

POLL_S = 0.25  # between two looks at a job


class PolicyFigures:
    """Where policies stand and how they came there: `client.figures`. It needs the scope `admin` or `read`.

        standing = client.figures.standing()
        print(standing["state"], standing["gain"]["value"])

    Times are seconds since 1970. The OpenAPI document of the service describes every field.
    """

    def __init__(self, calls: Calls, path: str) -> None:
        self._calls = calls
        self._path = path

    def overview(self) -> list[dict[str, Any]]:
        """Return where all policies of the tenant stand.

        late = [policy["name"] for policy in client.figures.overview() if policy["alarms"]]
        """
        found: list[dict[str, Any]] = self._calls.call("GET", "/v1/overview")["policies"]
        return found

    def standing(self) -> dict[str, Any]:
        """Return where the policy stands: pace, forecast, gain with its error, queue, alarms.

        client.figures.standing()["runs_out_at"]
        """
        found: dict[str, Any] = self._calls.call("GET", f"{self._path}/standing")
        return found

    def series(self, buckets: int = 120) -> dict[str, Any]:
        """Return decisions, spending, price and gain over time.

        client.figures.series(buckets=24)["gain"]

        Args:
            buckets: How many steps of time at most, up to 2,000.
        """
        found: dict[str, Any] = self._calls.call("GET", f"{self._path}/series?buckets={int(buckets)}")
        return found

    def estimates(self) -> dict[str, Any]:
        """Return what the policy has learned: coefficients with errors, predicted against observed, drifts.

        client.figures.estimates()["targets"][0]["calibration"]
        """
        found: dict[str, Any] = self._calls.call("GET", f"{self._path}/estimates")
        return found

    def reviewers(self) -> list[dict[str, Any]]:
        """Return what each reviewer has done: answers, declined and lapsed tasks, time, cost, agreement.

        {line["reviewer"]: line["done"] for line in client.figures.reviewers()}
        """
        found: list[dict[str, Any]] = self._calls.call("GET", f"{self._path}/reviewers")["reviewers"]
        return found

    def what_if(self, budgets: Sequence[str], *, total_s: float = 1800.0) -> dict[str, Any]:
        """Return what other budgets would have done with the same tasks; wait until it is computed.

        rows = client.figures.what_if(["0.5x", "2x"])["rows"]

        Args:
            budgets: As `deferkit replay --budget` takes them: 500, 2x, 50%, inf; minutes=500,euros=2x.
            total_s: Seconds to wait for it.

        Raises:
            ServiceUnavailable: It was not computed in time, or failed.
        """
        body = {"budgets": names_of("budgets", budgets)}
        job = self._calls.call("POST", f"{self._path}/what-if", body)["job"]
        end = time.monotonic() + total_s
        while True:
            found: dict[str, Any] = self._calls.call("GET", f"{self._path}/what-if?job={job}")
            if found["state"] == "done":
                return found
            if found["state"] == "failed":
                raise ServiceUnavailable(f"The what-if failed. {found['error']}")
            if time.monotonic() > end:
                raise ServiceUnavailable(f"The what-if was not computed within {total_s:g} seconds.")
            time.sleep(POLL_S)
