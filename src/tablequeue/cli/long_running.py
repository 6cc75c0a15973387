"""What commands that run for long share: logs, for people or for a log collector, and the server of their health."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from tablequeue.observe.health import Health

F = TypeVar("F", bound=Callable[..., Any])
# The attributes of every record. Other attributes were given as `extra`.
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON: time, level, logger, message, the fields of `extra`, and a traceback."""

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


def configure_logs(*, as_json: bool) -> None:
    """Log to stderr, unless logging is already configured, for example by the module of a handler."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def health_options(command: F) -> F:
    """Add the options that `serving_health` takes."""
    port = click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        help="Serve /healthz, /readyz and /metrics on this port; 0: a free one.",
    )
    host = click.option("--health-host", default="127.0.0.1", show_default=True, help="The address of --health-port.")
    return port(host(command))


def serving_health(host: str, port: int | None, health: Callable[[], Health]) -> AbstractContextManager[object]:
    """Serve the health of this process until the block ends, if a port is given."""
    if port is None:
        return nullcontext()
    from tablequeue.observe.health_server import HealthServer  # without a port no HTTP module is imported

    return HealthServer(health(), host, port)
