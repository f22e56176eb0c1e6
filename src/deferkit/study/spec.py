"""Specifications of trials, and the digest of the code that runs them."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from deferkit.errors import InvalidArgument, expected
from deferkit.learn.core import FEEDBACKS
from deferkit.plugins import plugin_digest
from deferkit.study.allowance import Allowance
from deferkit.study.peers import PEERS
from deferkit.study.policy_registry import POLICIES, check_policy_name, is_learner, policy_plugin
from deferkit.types import is_number
from deferkit.worlds import WORLDS, kind_of, make_world
from deferkit.worlds.table import Table

PACKAGE = Path(__file__).parent.parent
EXCLUDED = ("cli", "client", "serve", "study/drawing", "testing")
"""The command line, the service with its client, drawing, and checks of plug-ins: no trial imports them.

Everything else is in the key.
"""
SOURCE_SUFFIXES = {".py", ".pyx", ".pxd", ".h"}
LIBRARIES = ("numpy", "scipy", "polars", "lightgbm")


def measuring_sources(package: Path = PACKAGE) -> list[Path]:
    """Return the source files that can change results, sorted by path.

    Args:
        package: The folder of the package.

    Returns:
        Every source file of the package outside of `EXCLUDED`, so that a new module is covered without being listed.

    >>> names = [path.name for path in measuring_sources()]
    >>> "deferrer.py" in names, "charts.py" in names
    (True, False)
    """
    excluded = [package / folder for folder in EXCLUDED]
    sources = (path for path in package.rglob("*") if path.suffix in SOURCE_SUFFIXES)
    return sorted(path for path in sources if not any(folder in path.parents for folder in excluded))


def source_digest(package: Path = PACKAGE) -> str:
    """Return a hash of the source files of a package that can change results, and of the versions of libraries.

    Args:
        package: The folder of the package.
    """
    digest = hashlib.sha256(" ".join(map(library_version, LIBRARIES)).encode())
    for path in measuring_sources(package):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def code_digest() -> str:
    """Return the digest of the code that is running; it is read once for each process."""
    return source_digest()


def library_version(name: str) -> str:
    """Return the version of a library, or "" if it is not installed.

    >>> library_version("no-such-library")
    ''
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


TRACES = ("", "path", "coverage", "alarms")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A policy in a world with a budget; with a seed it is a trial.

    Make one with `Spec.of`, which checks it.

    Args:
        world: The name of a world, a path to a table, or the name of a plug-in.
        world_parameters: All fields of the world.
        policy: A name in `deferkit.study.policy_registry.POLICIES`, or that of a plug-in.
        budget: As text: "2000" units of cost, "0.1T" of tasks, "10%" of the cost of asking always, or "inf".
        feedback: Which rewards a learner observes: "full", "bandit" or "reviewed".
        policy_parameters: Arguments of a `Deferrer`, for learners.
        trace: What is recorded during the run: nothing (""), the "path", the "coverage" of ellipsoids, or
            "alarms" of drift.

    >>> spec = Spec.of("synthetic", {"regime": "dominant"}, policy="default", budget="0.04T")
    >>> spec.world_parameters["n_features"], spec.feedback
    (20, 'full')
    """

    world: str
    world_parameters: Mapping[str, Any]
    policy: str
    budget: str
    feedback: str = "full"
    policy_parameters: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""

    @classmethod
    def of(cls, world: str, parameters: Mapping[str, Any], **given: Any) -> "Spec":
        """Return a checked specification with all parameters of its world.

        Args:
            world: The name of a world, or a path to a table.
            parameters: Fields of the world; the others have their defaults.
            given: Further fields of a specification.

        Raises:
            InvalidArgument: There is no such world, parameter, policy, feedback or trace, or they do not fit.
        """
        if is_number(given.get("budget")):
            given["budget"] = str(given["budget"])
        spec = cls(world=world, world_parameters=make_world(world, parameters).parameters(), **given)
        check_policy_name(spec.policy)
        if not is_learner(spec.policy) and (spec.policy_parameters or spec.trace in ("coverage", "alarms")):
            raise InvalidArgument(f"Parameters, coverage and alarms are for learners. Got the policy {spec.policy!r}.")
        if spec.policy in PEERS and spec.feedback != "bandit":
            raise InvalidArgument(
                f"The policy {spec.policy!r} learns from bandit feedback only. Got {spec.feedback!r}."
            )
        Allowance.from_text(spec.budget)
        for name, value, known in (("feedback", spec.feedback, FEEDBACKS), ("trace", spec.trace, TRACES)):
            if value not in known:
                raise expected(name, "study", "one of " + ", ".join(map(repr, known)), value)
        return spec

    @functools.cached_property
    def text(self) -> str:
        """The specification as text, the same for the same specification."""
        return json.dumps(asdict(self), sort_keys=True)

    @functools.cached_property
    def key(self) -> str:
        """The key of its results: a hash of the specification and of the source code."""
        library = PEERS[self.policy].version if self.policy in PEERS else ""
        return hashlib.sha256(f"{code_digest()} {library}{self._plugin_code} {self.text}".encode()).hexdigest()[:24]

    @property
    def _plugin_code(self) -> str:
        """The digests of what is from outside the package; nothing, if all is from here."""
        policy = None if self.policy in POLICIES else policy_plugin(self.policy)
        kinds = [] if policy is None else [policy.value]
        if self.world not in WORLDS and (kind := kind_of(self.world)) is not Table:
            kinds.append(kind)
        return "".join(f" {plugin_digest(kind)}" for kind in kinds)

    @functools.cached_property
    def world_text(self) -> str:
        """The world alone, as text: trials with the same one and the same seed share a stream."""
        return json.dumps([self.world, self.world_parameters], sort_keys=True)
