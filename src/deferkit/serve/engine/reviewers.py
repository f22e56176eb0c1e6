"""Statistics of reviewers: answers, claims, costs, and agreement with the model and with each other."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from deferkit.serve.domain.money import MICRO, in_reply
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.domain.review_form import label_of
from deferkit.serve.storage.store import Store

LATEST_ANSWERS = 20_000  # answers that cost and agreement are computed from
MAX_REVIEWERS = 1000  # reviewers


class ReviewerLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a reviewer has done. Cost, time and agreement are those of the latest 20,000 answers of the policy."""

    reviewer: str
    done: int  # answers
    held: int  # tasks that the reviewer holds now
    declined: int
    lapsed: int  # claims that ended without an answer: the lease lapsed, or the task was given back or closed
    active_s: float | None  # by the timer of the review page; None: the policy has none
    cost: dict[str, float]
    agrees_with_model: float | None  # share of answers; None: there is none to compare with
    agrees_with_colleagues: float | None  # share of the answers that others gave to the same tasks
    last: float | None  # the last claim, in seconds since 1970


class ReviewersReply(msgspec.Struct, frozen=True, kw_only=True):
    """What each reviewer of a policy has done, by name."""

    reviewers: list[ReviewerLine]


class ReviewAnswer(NamedTuple):
    """An answer of a reviewer."""

    reviewer: str
    task: str
    label: Any
    model: Any  # the label of the model's answer; None: not known, or erased
    cost: Mapping[str, int]


def reviewers_of(store: Store, policy: int, spec: PolicySpec, now: int) -> ReviewersReply:
    """Return what each reviewer of a policy has done.

    Args:
        store: Where that is kept.
        policy: The number of the policy.
        spec: Its settings.
        now: The time, in microseconds.
    """
    reader = store.database.reader()
    answers = [answer_of(spec, *row) for row in reader.run("reviewer_answers", policy=policy, limit=LATEST_ANSWERS)]
    costs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in answers:
        costs[each.reviewer].update(each.cost)
    for reviewer, effort in reader.run("reviewer_efforts", policy=policy, limit=LATEST_ANSWERS):
        costs[reviewer].update(msgspec.json.decode(effort))
    with_model = shares((each.reviewer, each.label == each.model) for each in answers if each.model is not None)
    with_others = shares(pairs(answers))
    document = spec.review_used
    timer = None if document is None else document.timer
    lines = []
    for reviewer, claims, last, done, held, declined in reader.run(
        "reviewer_counts", policy=policy, now=now, limit=MAX_REVIEWERS
    ):
        spent = {name: costs[reviewer][name] for name in spec.resources}
        lines.append(
            ReviewerLine(
                reviewer=reviewer,
                done=done,
                held=held,
                declined=declined,
                lapsed=max(0, claims - done - held - declined),
                active_s=None if timer is None else spent[timer.resource] / MICRO * timer.unit_s,
                cost={name: in_reply(micro) for name, micro in spent.items()},
                agrees_with_model=with_model.get(reviewer),
                agrees_with_colleagues=with_others.get(reviewer),
                last=None if last is None else last / MICRO,
            )
        )
    return ReviewersReply(reviewers=lines)


def answer_of(
    spec: PolicySpec, reviewer: str, task: str, answer: str | None, model_answer: str | None, cost: str | None
) -> ReviewAnswer:
    """Decode the JSON columns of an answer; answers are reduced to their labels, to be compared."""
    given, model = (None if text is None else msgspec.json.decode(text) for text in (answer, model_answer))
    document = spec.review_used
    if document is not None:
        given, model = label_of(document.form, given), label_of(document.form, model)
    return ReviewAnswer(reviewer, task, given, model, {} if cost is None else msgspec.json.decode(cost))


def pairs(answers: Iterable[ReviewAnswer]) -> Iterable[tuple[str, bool]]:
    """Yield each reviewer of a task with whether a colleague gave the same answer, for each colleague.

    >>> answers = [ReviewAnswer(reviewer, task, 1, None, {}) for reviewer, task in ("at", "bt", "bu")]
    >>> list(pairs(answers))
    [('a', True), ('b', True)]
    """
    of_task: defaultdict[str, list[ReviewAnswer]] = defaultdict(list)
    for each in answers:
        of_task[each.task].append(each)
    for group in of_task.values():
        yield from ((one.reviewer, one.label == two.label) for one in group for two in group if one is not two)


def shares(compared: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Return the share of agreeing pairs, by reviewer.

    >>> shares([("ann", True), ("ann", False), ("bo", True)])
    {'ann': 0.5, 'bo': 1.0}
    """
    agreed: defaultdict[str, list[bool]] = defaultdict(list)
    for reviewer, same in compared:
        agreed[reviewer].append(same)
    return {reviewer: sum(each) / len(each) for reviewer, each in agreed.items()}
