"""Encoding and decoding of database rows: some columns are JSON."""

from typing import Any

import msgspec

from deferkit.serve.domain.rows import ClaimRow, DecisionRow, ParkedRow, SeatRow

to_json = msgspec.json.Encoder().encode


def to_json_column(value: Any) -> str | None:
    """Return plain data as a column of JSON; None as NULL."""
    return None if value is None else to_json(value).decode()


def from_json_column(text: str | None) -> Any:
    """Return the data of a JSON column; NULL as None."""
    return None if text is None else msgspec.json.decode(text)


def decision_row(row: tuple[Any, ...]) -> DecisionRow:
    """Return a row of decisions with its JSON read."""
    each = DecisionRow(*row)
    return each._replace(
        held=from_json_column(row[8]), rewards=from_json_column(row[9]), cost=from_json_column(row[10])
    )


def decision_values(row: DecisionRow) -> tuple[Any, ...]:
    """Return the columns of a decision."""
    return (*row[:8], to_json_column(row.held), to_json_column(row.rewards), to_json_column(row.cost), *row[11:])


def seat_row(row: tuple[Any, ...]) -> SeatRow:
    """Return a row of seats with its JSON read."""
    each = SeatRow(*row)
    return each._replace(rewards=from_json_column(row[14]), cost=from_json_column(row[15]))


def seat_values(row: SeatRow) -> tuple[Any, ...]:
    """Return the columns of a seat."""
    return row._replace(rewards=to_json_column(row.rewards), cost=to_json_column(row.cost))  # type: ignore[arg-type]


def oldest_parked_row(row: tuple[Any, ...]) -> ParkedRow:
    """Return a parked outcome, of a query by key."""
    policy, key, task, body, at = row
    return ParkedRow(policy, task, body, at, key)


def claim_row(row: tuple[Any, ...]) -> ClaimRow:
    """Return a row of claims with its JSON read."""
    token = None if row[7] is None else bytes(row[7])
    visible = None if row[8] is None else bool(row[8])
    return ClaimRow(*row)._replace(effort=from_json_column(row[6]), token=token, visible=visible)
