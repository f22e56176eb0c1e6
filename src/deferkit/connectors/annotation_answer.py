"""Conversion of Label Studio annotations to deferkit: an answer that fits the review form, and a cost."""

from collections.abc import Mapping, Sequence
from typing import Any

YES, NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})
LISTS = ("choices", "text", "taxonomy")
VALUES = ("rating", "number", "datetime")


def find_submitted(annotations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the annotation that counts: the first that was not skipped, else the first; None if there is none.

    Args:
        annotations: The annotations of a task.

    >>> find_submitted([{"id": 2, "was_cancelled": False}, {"id": 1, "was_cancelled": True}])["id"]
    2
    """
    return min(annotations, key=lambda each: (bool(each.get("was_cancelled")), each["id"]), default=None)


def cost_of(annotation: Mapping[str, Any], unit_s: float) -> float | None:
    """Return the cost of an annotation: its lead time, in units of `unit_s` seconds; None if it is not known.

    >>> cost_of({"lead_time": 90.0}, 60.0), cost_of({"lead_time": None}, 60.0)
    (1.5, None)
    """
    seconds = annotation.get("lead_time")
    return None if seconds is None else max(0.0, float(seconds)) / unit_s


def answer_of(result: Sequence[Mapping[str, Any]], form: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return the answer of an annotation.

    Args:
        result: The regions of the annotation.
        form: The fields of the policy's review form; a control tag of the labelling interface with the name of a field
            fills it. None without a form: the values by control tag, or the regions themselves where there are others
            than choices, texts, ratings, numbers, dates and taxonomies.

    >>> spam = {"from_name": "label", "type": "choices", "value": {"choices": ["spam"]}}
    >>> answer_of([spam], [{"name": "label", "kind": "choice"}])
    {'label': 'spam'}
    >>> answer_of([spam | {"from_name": "spam", "value": {"choices": ["yes"]}}], [{"name": "spam", "kind": "boolean"}])
    {'spam': True}
    """
    values: dict[str, Any] = {}
    for region in result:
        found = value_of(region)
        if found is None and form is None:
            return list(result)
        if found is not None:
            values[region["from_name"]] = found
    if form is None:
        return {name: value[0] if is_single(value) else value for name, value in values.items()}
    kinds = {field["name"]: field["kind"] for field in form}
    return {name: as_kind(value, kinds[name]) for name, value in values.items() if name in kinds}


def value_of(region: Mapping[str, Any]) -> Any:
    """Return the value of a region; None if it is one of an image, say, that is more than a value."""
    value = region.get("value", {})
    if set(value) & {"start", "end", "x", "y", "points"}:  # it marks a part of the text, image or sound
        return None
    return next((value[name] for name in (*LISTS, *VALUES) if name in value), None)


def as_kind(value: Any, kind: str) -> Any:
    """Return a value as a field of a kind wants it; as it is where it does not fit, so that the service says why."""
    if kind == "choices":
        return value
    single = value[0] if is_single(value) else value
    if kind == "text" and isinstance(value, list):
        return "\n".join(map(str, value))
    if kind == "boolean" and isinstance(single, str):
        return True if single.lower() in YES else False if single.lower() in NO else single
    if kind == "number" and isinstance(single, str):
        try:
            return float(single)
        except ValueError:
            return single
    return single


def is_single(value: Any) -> bool:
    """Whether a value is a list of one."""
    return isinstance(value, list) and len(value) == 1
