"""Policies from outside the package: whole policies, and pacings or embeddings of the default."""

import functools
from typing import Any, NamedTuple

from deferkit.learn.embed import EMBEDDING_PLUGINS
from deferkit.learn.pacing import PACING_PLUGINS
from deferkit.plugins import InvalidPlugin, PluginGroup, is_reference, load_reference


def is_policy(made: Any) -> bool:
    """Return whether an object makes policies: a class with the two verbs of a `Peer`, or a function.

    >>> is_policy(dict), is_policy(lambda setting: None)
    (False, True)
    """
    if isinstance(made, type):
        return all(callable(getattr(made, verb, None)) for verb in ("decide", "observe"))
    return callable(made)


POLICY_PLUGINS = PluginGroup(
    noun="policy",
    group="deferkit.policies",
    wanted="a class with `decide` and `observe`, or a function, that takes a Setting; or a pacing, or an embedding",
    accepts=is_policy,
)
GROUPS = (POLICY_PLUGINS, PACING_PLUGINS, EMBEDDING_PLUGINS)


class PolicyPlugin(NamedTuple):
    """A policy from outside the package.

    Attributes:
        group: What it is: a policy, a pacing or an embedding.
        value: The class or function.
    """

    group: PluginGroup
    value: Any

    @property
    def is_learner(self) -> bool:
        """Whether it is the default with another pacing or an embedding."""
        return self.group is not POLICY_PLUGINS

    @property
    def has_embedding(self) -> bool:
        """Whether it is the default with an embedding."""
        return self.group is EMBEDDING_PLUGINS


@functools.cache
def policy_plugin(name: str) -> PolicyPlugin | None:
    """Return the plug-in of a policy; None if there is none of this name.

    Args:
        name: Of an entry point of one of `GROUPS`, or `module:name`.

    Raises:
        InvalidPlugin: The plug-in cannot be used.
    """
    if is_reference(name):
        value = load_reference(name)
        groups = [group for group in (PACING_PLUGINS, EMBEDDING_PLUGINS) if group.accepts(value)] or [POLICY_PLUGINS]
    else:
        groups = [group for group in GROUPS if name in group.names()]
    if len(groups) > 1:
        both = " and ".join(group.noun for group in groups)
        raise InvalidPlugin(f"{name!r} is the name of a {both}: name one of them as module:name.")
    return PolicyPlugin(groups[0], groups[0].find(name)) if groups else None


def plugin_names() -> list[str]:
    """Return the names of all installed policies, pacings and embeddings."""
    return [name for group in GROUPS for name in group.names()]
