"""Reward rules: how the answers of reviewers and the model's answer become rewards, so that nobody types them in."""

from collections import Counter
from typing import Annotated, Any

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.types import LARGEST, MODEL

LabelText = Annotated[str, msgspec.Meta(max_length=1000)]
Reward = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
ByDecider = Annotated[dict[str, Reward], msgspec.Meta(max_length=64, description="by decider")]
ByModelAnswer = Annotated[dict[LabelText, ByDecider], msgspec.Meta(max_length=100, description="by the model's answer")]


class MatchRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="match"):
    """The reward is 1 for the label that most reviewers gave, else 0; an expert's is the share who gave it."""

    def rewards(self, labels: list[Any], model: Any, expert: str) -> dict[str, float]:
        """Return the rewards of a task.

        Parameters
        ----------
        labels
            What the reviewers have answered, in the order of their seats.
        model
            What the model has answered; None if that is not known, so that it gets no reward.
        expert
            Whose reviewers they are.

        >>> MatchRule().rewards(["spam", "ham", "spam"], "ham", "human")
        {'human': 0.6666666666666666, 'model': 0.0}
        """
        texts = [text_of(label) for label in labels]
        final = texts[majority_index(labels)]
        found = {expert: texts.count(final) / len(texts)}
        return found if model is None else found | {MODEL: float(text_of(model) == final)}

    def check(self, deciders: tuple[str, ...], reward_range: tuple[float, float]) -> None:  # noqa: ARG002
        """Raise if the policy does not take all rewards from 0 to 1."""
        check_range({0.0, 1.0}, reward_range)


class TableRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="table"):
    """The rewards are those of a table: by the final label, then by the model's answer, then by decider."""

    table: Annotated[
        dict[LabelText, ByModelAnswer], msgspec.Meta(min_length=1, max_length=100, description="by the final label")
    ] = msgspec.field(name="rewards")

    def rewards(self, labels: list[Any], model: Any, expert: str) -> dict[str, float]:  # noqa: ARG002
        """Return the rewards of a task; none where the table has no line for it.

        >>> rule = TableRule(table={"true": {"ham": {"model": 0.0, "human": 1.0}}})
        >>> rule.rewards([True], "ham", "human"), rule.rewards([False], "ham", "human")
        ({'model': 0.0, 'human': 1.0}, {})
        """
        if model is None:
            return {}
        final = text_of(labels[majority_index(labels)])
        return dict(self.table.get(final, {}).get(text_of(model), {}))

    def check(self, deciders: tuple[str, ...], reward_range: tuple[float, float]) -> None:
        """Raise if the table has a reward of nobody, or one that the policy does not take."""
        found = [rewards for row in self.table.values() for rewards in row.values()]
        for name in {name for rewards in found for name in rewards}:
            if name not in deciders:
                raise InvalidArgument(f"A reward rule has rewards of {', '.join(deciders)}. Got one of {name!r}.")
        check_range({value for rewards in found for value in rewards.values()}, reward_range)


def check_range(rewards: set[float], reward_range: tuple[float, float]) -> None:
    """Raise if a rule may give a reward that the policy does not take."""
    low, high = reward_range
    if any(not low <= value <= high for value in rewards):
        raise InvalidArgument(f"The rewards of this policy are from {low:g} to {high:g}; its reward rule has others.")


def text_of(label: Any) -> str:
    """Return a label as text, the same for labels that are equal: 2 and 2.0, and choices in any order.

    >>> text_of("spam"), text_of(True), text_of(2.0), text_of(["b", "a"])
    ('spam', 'true', '2', '["a","b"]')
    """
    if isinstance(label, str):
        return label
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, list):
        label = sorted(label, key=text_of)
    return msgspec.json.encode(label, order="sorted").decode()


def majority_index(labels: list[Any]) -> int:
    """Return the index of the majority label; of the first one in a tie.

    >>> majority_index(["ham", "spam", "spam"]), majority_index(["ham", "spam"])
    (1, 0)
    """
    texts = [text_of(label) for label in labels]
    counts = Counter(texts)
    return max(range(len(texts)), key=lambda index: (counts[texts[index]], -index))
