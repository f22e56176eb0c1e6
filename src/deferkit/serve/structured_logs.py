"""Structured logs: a line of JSON for each event, without features, payloads or keys."""

import json
import logging
import sys
import traceback
from logging.handlers import MemoryHandler
from types import TracebackType

import msgspec

logger = logging.getLogger("deferkit.serve")
access_logger = logging.getLogger("deferkit.serve.access")
MAX_HELD = 1000  # lines that are held back until the address is printed
STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; a newline within it is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{name: value for name, value in record.__dict__.items() if name not in STANDARD},
        }
        if record.exc_info:
            line["trace"] = trace(record.exc_info[1])
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (UnicodeEncodeError, OverflowError):  # half of a character, say
            return json.dumps(line, default=str)


def trace(error: BaseException | None) -> list[str]:
    """Return the type and traceback of an error, without its message, which may quote a request.

    >>> try:
    ...     int("a secret")
    ... except ValueError as error:
    ...     print(trace(error)[0])
    ValueError
    """
    if error is None:
        return []
    at: TracebackType | None = error.__traceback__
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(at)]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return [type(error).__name__, *frames, *trace(cause)]


def log_to_stderr(level: str) -> None:
    """Send the service's log to standard error, held back until `release`: the address is printed first."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonLines())
    handler = MemoryHandler(MAX_HELD, flushLevel=logging.ERROR, target=stream)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)  # whatever else has something to say
    for name in ("deferkit.serve", "uvicorn", "uvicorn.error", "litestar"):
        each = logging.getLogger(name)
        each.handlers = [handler]
        each.propagate = False
        each.setLevel(level.upper())
    access_logger.setLevel(logging.INFO)  # it is asked for by a setting of its own


def release() -> None:
    """Log the buffered lines, and stop buffering."""
    for each in logger.handlers:
        if isinstance(each, MemoryHandler):
            each.capacity = 0
            each.flush()
