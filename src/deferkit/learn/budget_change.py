"""Raising or lowering the total of the budget, never below what is spent or reserved."""

import numpy as np

from deferkit.errors import BudgetExhausted
from deferkit.learn import inputs
from deferkit.learn.components import Components
from deferkit.learn.pacing import Budgets
from deferkit.types import Amount, show


def change_budget(components: Components, total: Amount) -> None:
    """Set the total of the budget, and let the pacing react.

    Args:
        components: Of the learner.
        total: The new total, by resource if there are several.

    Raises:
        InvalidArgument: If the total is not a valid amount.
        BudgetExhausted: If the total is less than what is spent and reserved.
    """
    settings, ledger = components.settings, components.ledger
    before = Budgets(ledger.view("total").copy(), ledger.view("horizon"))
    after = before._replace(total=np.array(inputs.as_totals(total, settings.resources, before.total.tolist())))
    used = ledger.view("spent") + ledger.view("reserved")
    if (after.total < used).any():
        taken = show(components.reader.amount(used.tolist()))
        raise BudgetExhausted(f"The budget cannot be cut to {show(total)}: {taken} is spent or reserved.")
    ledger.view("total")[:] = after.total
    settings.pacing.strategy.budget_changed(ledger.dual, before, after, ledger.next_id, ledger.get("warm_up"))
    if components.representation is not None:
        components.representation.refresh_window_if_due()
