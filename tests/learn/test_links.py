import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from deferkit import InvalidArgument
from deferkit.learn.core import link_functions
from deferkit.learn.links import LINKS, link_named

IDENTITY, LOGISTIC = LINKS["identity"].code, LINKS["logistic"].code


def mean(link: int, eta: float) -> float:
    return link_functions(link, eta)[0]


def slope(link: int, eta: float) -> float:
    return link_functions(link, eta)[1]


@given(st.floats(-700, 700))
def test_logistic_mean_is_expit(x: float) -> None:
    assert mean(LOGISTIC, x) == pytest.approx(float(expit(x)), rel=1e-14, abs=0)


@given(st.floats(-30, 30))
def test_slope_is_the_derivative_of_the_mean(x: float) -> None:
    for link in (IDENTITY, LOGISTIC):
        step = 1e-5
        numeric = (mean(link, x + step) - mean(link, x - step)) / (2 * step)
        assert slope(link, x) == pytest.approx(numeric, rel=1e-4, abs=1e-10)


def test_extreme_predictors_stay_finite() -> None:
    for x in (-1e308, -1000.0, 1000.0, 1e308):
        assert 0 <= mean(LOGISTIC, x) <= 1
        assert slope(LOGISTIC, x) == 0


def test_an_unknown_link_lists_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match="one of 'identity', 'logistic'. Got 'probit' instead"):
        link_named("probit")


def test_each_link_has_its_domain() -> None:
    assert LINKS["identity"].domain == (-np.inf, np.inf)
    assert LINKS["logistic"].domain == (0, 1)
