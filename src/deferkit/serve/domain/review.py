"""Reviews: forms, and rules that turn answers into rewards."""

import sys
from collections import Counter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.types import LARGEST, MODEL

LabelText = Annotated[str, msgspec.Meta(max_length=1000)]
Reward = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
ByDecider = Annotated[dict[str, Reward], msgspec.Meta(max_length=64, description="Rewards by decider.")]
ByModelAnswer = Annotated[
    dict[LabelText, ByDecider], msgspec.Meta(max_length=100, description="Rewards by the model's answer.")
]


class MatchRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="match"):
    """The model's reward is 1 if it gave the majority label, else 0; an expert's reward is the share of that label."""

    def rewards(self, labels: list[Any], model: Any, expert: str) -> dict[str, float]:
        """Return the rewards of a task.

        Args:
            labels: What the reviewers have answered, in the order of their seats.
            model: What the model has answered; None if that is not known, so that it gets no reward.
            expert: Whose reviewers they are.

        >>> MatchRule().rewards(["spam", "ham", "spam"], "ham", "human")
        {'human': 0.6666666666666666, 'model': 0.0}
        """
        texts = [text_of(label) for label in labels]
        final = texts[majority_index(labels)]
        found = {expert: texts.count(final) / len(texts)}
        return found if model is None else found | {MODEL: float(text_of(model) == final)}

    def check(self, deciders: tuple[str, ...], reward_range: tuple[float, float]) -> None:  # noqa: ARG002
        """Raise if the policy's reward range does not contain 0 to 1."""
        check_range({0.0, 1.0}, reward_range)


class TableRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="table"):
    """Rewards from a table: by final label, then by the model's answer, then by decider."""

    table: Annotated[
        dict[LabelText, ByModelAnswer],
        msgspec.Meta(min_length=1, max_length=100, description="Rewards by final label."),
    ] = msgspec.field(name="rewards")

    def rewards(self, labels: list[Any], model: Any, expert: str) -> dict[str, float]:  # noqa: ARG002
        """Return the rewards of a task; empty if the table has no line for it.

        >>> rule = TableRule(table={"true": {"ham": {"model": 0.0, "human": 1.0}}})
        >>> rule.rewards([True], "ham", "human"), rule.rewards([False], "ham", "human")
        ({'model': 0.0, 'human': 1.0}, {})
        """
        if model is None:
            return {}
        final = text_of(labels[majority_index(labels)])
        return dict(self.table.get(final, {}).get(text_of(model), {}))

    def check(self, deciders: tuple[str, ...], reward_range: tuple[float, float]) -> None:
        """Raise if the table has a reward of an unknown decider or outside the reward range."""
        found = [rewards for row in self.table.values() for rewards in row.values()]
        for name in {name for rewards in found for name in rewards}:
            if name not in deciders:
                raise InvalidArgument(f"A reward rule has rewards of {', '.join(deciders)}. Got one of {name!r}.")
        check_range({value for rewards in found for value in rewards.values()}, reward_range)


def check_range(rewards: set[float], reward_range: tuple[float, float]) -> None:
    """Raise if a rule may give a reward outside the policy's reward range."""
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


HIDDEN, AFTER, SHOWN = "hidden", "after", "shown"
FieldName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}(?!\n)$", description="Letters, digits, . _ -")
]
Label = Annotated[str, msgspec.Meta(max_length=200)]
Bound = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class FormOption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of a choice, with a label. The label is the value by default."""

    value: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    label: Label | None = None


class FormField(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field of a form. `min` and `max` bound a number, the length of a text, or the number of choices."""

    name: FieldName
    kind: Literal["choice", "choices", "boolean", "number", "text"]
    label: Label = ""
    options: Annotated[
        list[FormOption], msgspec.Meta(max_length=100, description="The options of a choice or of choices.")
    ] = []
    required: bool = True
    min: Bound | None = None
    max: Bound | None = None
    help: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Timer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The resource that active time is counted in, and the seconds per unit."""

    resource: Annotated[str, msgspec.Meta(max_length=64)]
    unit_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 60.0


class ReviewDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The review document: form, guidelines and display. An answer is an object of the form's fields.

    The first field is the label.
    """

    form: Annotated[list[FormField], msgspec.Meta(min_length=1, max_length=20)]
    guidelines: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    payload: Annotated[
        Literal["auto", "text", "fields", "table", "chat", "image", "json"],
        msgspec.Meta(description="How to show the payload of a task."),
    ] = "auto"
    model_answer: Annotated[
        Literal["hidden", "after", "shown"],
        msgspec.Meta(description="When reviewers see the model's answer: never, after their own answer, or before."),
    ] = "hidden"
    timer: Timer | None = None
    reward_rule: (
        Annotated[
            MatchRule | TableRule,
            msgspec.Meta(description="The rule that computes rewards from answers, if no rewards are reported."),
        ]
        | None
    ) = None


DEFAULT = ReviewDocument(form=[FormField(name="answer", kind="text", label="Answer")], model_answer="shown")
"""What is shown for a policy without a review document; its answers are not checked."""


def check_document(
    document: ReviewDocument,
    *,
    resources: tuple[str, ...],
    deciders: tuple[str, ...],
    reward_range: tuple[float, float],
) -> None:
    """Raise if a review document is invalid for a policy.

    Args:
        document: The document.
        resources: Names of the policy's resources, for the timer.
        deciders: The model and the experts of the policy, for the reward rule.
        reward_range: The least and the largest reward of the policy.

    Raises:
        InvalidArgument: A field comes twice, a choice has no options or the same one twice, bounds contradict each
            other, there is no such resource or decider, or the rule has rewards that the policy does not take.
    """
    names = [field.name for field in document.form]
    if len(set(names)) < len(names):
        raise InvalidArgument("The fields of a review form have different names.")
    for field in document.form:
        check_field(field)
    if document.timer is not None and document.timer.resource not in resources:
        raise InvalidArgument(
            f"The timer of a review counts one of the resources {', '.join(resources)}."
            f" Got {document.timer.resource!r}."
        )
    if document.reward_rule is not None:
        document.reward_rule.check(deciders, reward_range)


def check_field(field: FormField) -> None:
    """Raise if a field of a form is invalid."""
    values = [option.value for option in field.options]
    if field.kind in ("choice", "choices"):
        if not values or len(set(values)) < len(values):
            raise InvalidArgument(f"The field {field.name!r} of a review form needs options, each with another value.")
    elif values:
        raise InvalidArgument(f"The field {field.name!r} of a review form is of kind {field.kind}: it has no options.")
    if field.kind in ("choice", "boolean") and (field.min, field.max) != (None, None):
        raise InvalidArgument(f"The field {field.name!r} of a review form is of kind {field.kind}: it has no bounds.")
    if field.min is not None and field.max is not None and field.min > field.max:
        raise InvalidArgument(f"The min of field {field.name!r} of a review form is above its max.")


def check_answer(form: list[FormField], answer: Any) -> None:
    """Raise if an answer does not match a form.

    Args:
        form: The fields, in order.
        answer: What a reviewer has answered: an object of the form's fields. A field that is not required may be left
            out, or null.

    Raises:
        InvalidArgument: It is no object, a field is missing or unknown, or a value is none of the field's.

    >>> check_answer([FormField(name="spam", kind="boolean")], {"spam": "yes"})
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The field 'spam' of the answer is true or false.
    """
    if not isinstance(answer, dict):
        raise InvalidArgument("The answer is an object with the fields of the review form.")
    known = {field.name for field in form}
    for name in answer:
        if name not in known:
            raise InvalidArgument(f"The review form has no field {name!r}. It has {', '.join(known)}.")
    for field in form:
        value = answer.get(field.name)
        if value is None:
            if field.required:
                raise InvalidArgument(f"The field {field.name!r} of the answer is missing.")
        elif (wanted := expected_instead(field, value)) is not None:
            raise InvalidArgument(f"The field {field.name!r} of the answer is {wanted}.")


def expected_instead(field: FormField, value: Any) -> str | None:
    """Return the requirement of a field that a value breaks; None if the value is valid."""
    values = [option.value for option in field.options]
    match field.kind:
        case "boolean":
            good, wanted, size = isinstance(value, bool), "true or false", None
        case "choice":
            good, wanted, size = isinstance(value, str) and value in values, f"one of {', '.join(values)}", None
        case "choices":
            chosen = isinstance(value, list) and all(isinstance(each, str) and each in values for each in value)
            good = chosen and len(set(value)) == len(value) and (bool(value) or not field.required)
            wanted, size = f"a list of some of {', '.join(values)}", len(value) or None if good else None
        case "number":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            good, wanted, size = number and abs(value) <= sys.float_info.max, "a number", value
        case "text":
            good = isinstance(value, str) and (bool(value.strip()) or not field.required)
            wanted, size = "a text", len(value) or None if good else None
    return wanted if not good else None if size is None else violated_bound(field, size)


def violated_bound(field: FormField, size: float) -> str | None:
    """Return the bound of a field that a size violates; None if it is within both."""
    what = {"text": " characters", "choices": " choices"}.get(field.kind, "")
    if field.min is not None and size < field.min:
        return f"at least {field.min:g}{what}"
    if field.max is not None and size > field.max:
        return f"at most {field.max:g}{what}"
    return None


def label_of(form: list[FormField], answer: Any) -> Any:
    """Return the label of an answer, a reviewer's or the model's: the form's first field, or the plain value.

    >>> form = [FormField(name="label", kind="text"), FormField(name="why", kind="text", required=False)]
    >>> label_of(form, {"label": "spam", "why": "…"}), label_of(form, "spam")
    ('spam', 'spam')
    """
    return answer.get(form[0].name) if isinstance(answer, dict) else answer


class Judgement(NamedTuple):
    """Which answer of a task is used, and its rewards by the reward rule."""

    used: int | None  # index of the answer that is used: the first with the majority label; None: no answer has one
    rewards: dict[str, float]  # by the reward rule


def judge(document: ReviewDocument, answers: list[Any], model_answer: Any, expert: str) -> Judgement:
    """Return the used answer of a task, and the rewards of the reward rule.

    Args:
        document: The review document of the policy.
        answers: What the reviewers have answered, in the order of their seats.
        model_answer: What the model has answered; None if that is not known.
        expert: Whose reviewers they are.
    """
    labels = [label_of(document.form, answer) for answer in answers]
    labelled = [index for index, label in enumerate(labels) if label is not None]
    if not labelled:
        return Judgement(None, {})
    given, rule = [labels[index] for index in labelled], document.reward_rule
    rewards = {} if rule is None else rule.rewards(given, label_of(document.form, model_answer), expert)
    return Judgement(labelled[majority_index(given)], rewards)
