"""Logs of the commands that run for long: lines for people, or with --json an object a line for a collector."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

# What every record has; whatever else it has was given as `extra`.
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, logger, message, what was given as `extra`, and a traceback."""

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
    """Log to stderr, if the program has not set up logs of its own (as a handler's module may)."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
