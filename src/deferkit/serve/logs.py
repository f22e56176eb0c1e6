"""Structured logs: a line of JSON for each event, without features, payloads or keys."""

import logging
import sys

import msgspec

logger = logging.getLogger("deferkit.serve")
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
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_to_stderr(level: str) -> None:
    """Send the service's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("deferkit.serve", "uvicorn", "uvicorn.error", "litestar"):
        each = logging.getLogger(name)
        each.handlers = [handler]
        each.propagate = False
        each.setLevel(level.upper())
