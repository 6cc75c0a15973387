"""The health of commands that run for long: the options, and the server beside the command."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from tablequeue.observe.health import Health

F = TypeVar("F", bound=Callable[..., Any])


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
