"""Logs of commands that run for long: lines for people, or with --json a JSON object a line for a log collector."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

# The attributes of every record. Other attributes were given as `extra`.
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, the fields of `extra`, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _PLAIN},
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


def configure(*, as_json: bool) -> None:
    """Log to stderr, unless logging is already configured, for example by the module of a handler."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
