"""Checks that a plug-in keeps the promises of its kind, for the tests of whoever writes one.

>>> from deferkit.testing import check_policy
>>> check_policy("random")  # a name, `module:name`, a class or a function
['budget', 'seed', 'routes', 'inputs', 'feedback', 'small']
"""

from deferkit.testing.learner_checks import (
    ContractCheck,
    ContractViolated,
    check_embedding,
    check_pacing,
    embedding_checks,
    pacing_checks,
)
from deferkit.testing.policy_checks import check_policy, policy_checks
from deferkit.testing.world_checks import check_world, world_checks

__all__ = [
    "ContractCheck",
    "ContractViolated",
    "check_embedding",
    "check_pacing",
    "check_policy",
    "check_world",
    "embedding_checks",
    "pacing_checks",
    "policy_checks",
    "world_checks",
]
