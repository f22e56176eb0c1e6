"""Times in requests: seconds since 1970, or a text with an offset. They are kept as seconds."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

EXPECTED = "seconds since 1970, or a date and time with an offset such as '2026-12-31T18:00:00+01:00' or '…Z'"
WithOffset = Annotated[datetime, msgspec.Meta(tz=True)]
if TYPE_CHECKING:
    RequestTime: TypeAlias = float
else:  # what a request may have; `keep_seconds` leaves no text
    RequestTime = float | Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


def seconds_of(name: str, text: str) -> float:
    """Return a time as seconds since 1970.

    Args:
        name: The field, for the error message.
        text: A date and time in the form of RFC 3339, with an offset.

    Raises:
        ValueError: If it is in another form, or has no offset.

    >>> seconds_of("until", "1970-01-02T01:00:00+01:00")
    86400.0
    """
    try:
        return msgspec.convert(text, WithOffset).timestamp()
    except msgspec.ValidationError:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(f"Expected {EXPECTED} for `{name}`, got {shown!r}") from None


def keep_seconds(struct: msgspec.Struct, *fields: str) -> None:
    """Replace texts in fields of type `RequestTime` by seconds; to be called in `__post_init__`."""
    for field in fields:
        if isinstance(given := getattr(struct, field), str):
            msgspec.structs.force_setattr(struct, field, seconds_of(field, given))
