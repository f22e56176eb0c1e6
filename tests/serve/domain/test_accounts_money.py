"""Money is whole micro-units: what goes in comes out, and what is no amount is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.accounts import MAX_AMOUNT, MICRO, from_micros, to_micro, to_micros

micros = st.integers(0, MAX_AMOUNT * MICRO)


@given(micros)
def test_every_micro_unit_has_a_double_of_its_own(micro: int) -> None:
    assert to_micro("cost", micro / MICRO) == micro


@pytest.mark.parametrize("micro", [MAX_AMOUNT * MICRO, MAX_AMOUNT * MICRO - 1, 2**51 - 1, 2**51 + 1, 1, 0])
def test_at_the_ends_too(micro: int) -> None:
    assert to_micro("cost", micro / MICRO) == micro


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_sums_do_not_round(parts: list[int]) -> None:
    assert sum(to_micro("cost", part / MICRO) for part in parts) == to_micro("total", sum(parts) / MICRO)


@pytest.mark.parametrize(
    "value",
    [-1, -1e-9, math.nan, math.inf, -math.inf, MAX_AMOUNT + 1, 1e300, 10**400, True, "1", None, [1.0], 1 + 0j],
)
def test_what_is_no_amount_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="The cost is a number from 0 to 4,000,000,000"):
        to_micro("cost", value)


@pytest.mark.parametrize("value", [1e-7, 0.1234567, 5e-324, 1 / 3])
def test_what_is_finer_than_a_micro_unit_is_not_rounded_but_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="at most 6 decimals"):
        to_micro("cost", value)


@given(st.dictionaries(st.sampled_from(["minutes", "euros", "checks"]), micros, min_size=1))
def test_amounts_by_resource_go_there_and_back(given: dict[str, int]) -> None:
    assert to_micros("cost", from_micros(given), list(given)) == given


def test_an_amount_is_for_each_resource_and_for_no_other() -> None:
    assert to_micros("cost", {"minutes": 2}, ["minutes"]) == {"minutes": 2_000_000}
    for amount in (1.0, {"minutes": 1.0}, {"minutes": 1.0, "euros": 1.0, "checks": 1.0}):
        with pytest.raises(InvalidArgument, match="minutes, euros"):
            to_micros("cost", amount, ["minutes", "euros"])
    with pytest.raises(InvalidArgument, match="The cost in euros is a number"):
        to_micros("cost", {"minutes": 1.0, "euros": -1.0}, ["minutes", "euros"])
