"""All decisions of a policy as a table, the oldest first."""

from collections.abc import Iterator
from typing import Any

import msgspec

from deferkit.serve.audit.csv_text import Cell, amount_of, time_of
from deferkit.serve.domain.log_records import DecisionReply
from deferkit.serve.domain.policy_spec import PolicySpec
from deferkit.serve.storage.row_codec import from_json_column
from deferkit.serve.storage.store import Store
from deferkit.serve.storage.task_listing import ListedTask, tasks_from
from deferkit.types import MODEL

PAGE = 1000


def header_of(spec: PolicySpec) -> list[str]:
    """Return the names of the columns."""
    return [
        *("task", "id", "at", "route", "reason", "propensity", "state", "final", "expected_gain"),
        *(f"price_{name}" for name in spec.resources),
        *(f"reserved_{name}" for name in spec.resources),
        *(f"cost_{name}" for name in spec.resources),
        *(f"estimate_{name}" for name in spec.deciders),
        *(f"width_{name}" for name in spec.deciders),
        *(f"reward_{name}" for name in spec.deciders),
        *("answer", "reviewers"),
    ]


def decision_table(store: Store, policy: int, spec: PolicySpec) -> Iterator[list[Cell]]:
    """Yield a row of cells for each decision; what is decided meanwhile may be among them.

    Parameters
    ----------
    store
        Where they are.
    policy
        Number of the policy.
    spec
        Its settings: resources and deciders are columns.
    """
    start = 0
    while page := tasks_from(store.database, policy, start, PAGE):
        yield from (row_of(listed, spec) for listed in page)
        start = page[-1].decision.id + 1


def row_of(listed: ListedTask, spec: PolicySpec) -> list[Cell]:
    """Return the cells of a decision."""
    row = listed.decision
    said = msgspec.json.decode(bytes(row.reply), type=DecisionReply)
    held, cost = row.held or {}, row.cost or {}
    return [
        *(row.task, row.id, time_of(row.at), row.route, said.reason, said.propensity, row.state, row.final or ""),
        said.estimates[row.route] - said.estimates[MODEL],
        *by_resource(said.price, spec),
        *(amount_of(held.get(name)) for name in spec.resources),
        *(amount_of(cost.get(name)) for name in spec.resources),
        *(said.estimates[name] for name in spec.deciders),
        *(said.widths[name] for name in spec.deciders),
        *(row.rewards.get(name) for name in spec.deciders),
        answer_text(from_json_column(row.answer)),
        "; ".join(listed.reviewers),
    ]


def by_resource(amount: float | dict[str, float], spec: PolicySpec) -> list[Cell]:
    """Return an amount of each resource."""
    return [amount[name] for name in spec.resources] if isinstance(amount, dict) else [amount]


def answer_text(answer: Any) -> str:
    """Return an answer as text: as it is, or as JSON."""
    return answer if isinstance(answer, str) else "" if answer is None else msgspec.json.encode(answer).decode()
