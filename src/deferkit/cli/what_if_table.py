"""How it is shown what other budgets would have done."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deferkit.cli.app import console
from deferkit.cli.tables import plain_table, short, show_whole

if TYPE_CHECKING:
    from deferkit.serve.audit.counterfactual.estimate import Value
    from deferkit.serve.audit.counterfactual.what_if import Row, WhatIf


def show_what_if(found: "WhatIf") -> None:
    """Print a row for what was done and one for each other budget."""
    title = f"What another budget would have done with these {found.decisions:,} tasks"
    table = plain_table(title, ("budget",), ("asked %", "spent", "price", "reward a task", "difference"))
    for row in found.rows:
        table.add_row(
            name_of(row),
            f"{100 * row.asked:.1f}",
            amount(row.spent),
            amount(row.price),
            value(row.reward),
            "" if row is found.rows[0] else value(row.difference, sign="+"),
        )
    console.print()
    show_whole(table)
    console.print(f"reward – {found.basis}", highlight=False, markup=False)
    console.print("± standard error; price: the last one; difference: from what was done", highlight=False)
    for said in found.remarks:
        console.print(said, highlight=False, markup=False)


def name_of(row: "Row") -> str:
    """Return a budget as it was asked for, and what that is."""
    totals = {name: float("inf") if total is None else total for name, total in row.totals.items()}
    shown = amount(totals)
    between = "\n" if len(totals) > 1 else " "
    return shown if row.budget == shown else f"{shown}{between}({row.budget})"


def amount(given: float | Mapping[str, float]) -> str:
    r"""Return an amount that fits a column: a line for each resource, if there are several.

    >>> amount(12.346), amount({"minutes": 3.0, "euros": float("inf")})
    ('12.35', '3 minutes\ninf euros')
    """
    if not isinstance(given, Mapping):
        return f"{given:,.4g}" if abs(given) < 1000 else short(given, 0)
    if len(given) == 1:
        return amount(next(iter(given.values())))
    return "\n".join(f"{amount(each)} {name}" for name, each in given.items())


def value(given: "Value | None", sign: str = "") -> str:
    """Return a mean with its standard error; never minus nothing."""
    return "–" if given is None else f"{round(given.mean, 4) + 0.0:{sign}.4f} ± {given.se:.4f}"


def what_if_data(found: "WhatIf") -> dict[str, Any]:
    """Return it as plain data."""
    rows = []
    for row in found.rows:
        data = row._asdict()
        for name in ("reward", "difference"):
            given = data.pop(name)
            data[name], data[f"{name}_se"] = (None, None) if given is None else given
        rows.append(data)
    return {"decisions": found.decisions, "basis": found.basis, "rows": rows, "remarks": found.remarks}
