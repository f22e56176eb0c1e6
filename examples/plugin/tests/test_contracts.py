"""The plug-ins keep the promises of their kinds."""

from deferkit_shop.embedding import Products
from deferkit_shop.gaussian_process import GaussianProcess
from deferkit_shop.pacing import Proportional
from deferkit_shop.rules import Uncertain
from deferkit_shop.world import Shop

from deferkit.testing import check_embedding, check_pacing, check_policy, check_world


def test_all() -> None:
    check_policy(Uncertain)
    check_world(Shop, horizon=100)
    check_pacing(Proportional)
    check_embedding(Products)
    check_embedding(GaussianProcess)
