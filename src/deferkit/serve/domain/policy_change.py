"""What may be changed of a policy."""

from typing import Annotated, Literal

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.money import LARGEST_AMOUNT
from deferkit.serve.domain.policy_spec import BudgetSpec, Name, PolicySpec, Seats, Seconds
from deferkit.serve.domain.request_time import RequestTime, keep_seconds
from deferkit.serve.domain.review_form import ReviewDocument


class BudgetPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a budget is to last for, from now on: what it was made with is what may be changed."""

    horizon: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1, description="tasks, from the first on")] | None = None
    until: (
        Annotated[
            RequestTime,
            msgspec.Meta(
                description="seconds since 1970, or a text with an offset such as '2026-12-31T18:00:00+01:00'"
            ),
        ]
        | None
    ) = None
    allowance: (
        Annotated[float, msgspec.Meta(ge=0, le=LARGEST_AMOUNT, description="of each period from the next renewal on")]
        | None
    ) = None

    def __post_init__(self) -> None:
        """Keep the end as seconds."""
        keep_seconds(self, "until")


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be changed of a policy; the rest is what it has learned with. Totals have a call of their own."""

    budget: Annotated[dict[Name, BudgetPlan], msgspec.Meta(max_length=8, description="by resource")] = {}

    learning_window_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    deadline_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET
    after_deadline: Literal["model", "wait"] | msgspec.UnsetType = msgspec.UNSET
    lease_s: Seconds | msgspec.UnsetType = msgspec.UNSET
    reviewers: Seats | msgspec.UnsetType = msgspec.UNSET
    review: ReviewDocument | msgspec.UnsetType | None = msgspec.UNSET
    retention_s: Seconds | msgspec.UnsetType | None = msgspec.UNSET

    def of(self, spec: PolicySpec) -> PolicySpec:
        """Return the policy with these changes."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "budget"}
        given["budget"] = spec.budget | {
            name: planned(name, spec.budget.get(name), plan) for name, plan in self.budget.items()
        }
        return msgspec.structs.replace(spec, **{k: v for k, v in given.items() if v is not msgspec.UNSET})


def planned(name: str, budget: BudgetSpec | None, plan: BudgetPlan) -> BudgetSpec:
    """Return a budget with another horizon, end or allowance; raise if it has no such thing."""
    if budget is None:
        raise InvalidArgument(f"There is no resource {name!r}.")
    kind = "horizon" if not budget.is_timed else "until" if budget.every is msgspec.UNSET else "allowance"
    for field in plan.__struct_fields__:
        if getattr(plan, field) is not None and (field != kind or budget.total is None):
            has = "no end" if budget.total is None else {"allowance": "every"}.get(kind, kind)
            raise InvalidArgument(f"The budget of {name} has {has}, and no {field} to change.")
    new = getattr(plan, kind)
    if new is None:
        return budget
    if kind == "horizon":
        return msgspec.structs.replace(budget, horizon=new)
    return msgspec.structs.replace(budget, **{"total" if kind == "allowance" else kind: float(new)})
