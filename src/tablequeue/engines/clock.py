"""The clock of calls without `now=`: the database's own, unless a test has moved it.

It is one for all databases of the process. A test moves it by `tablequeue.testing.Clock`, and nothing else does.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

ahead: timedelta | None = None
"""How far the clock is ahead of the one of this process; None: it was not moved, and each database has its own."""


def now() -> datetime:
    return datetime.now(UTC) + (ahead or timedelta())


def moved(engine: Any, params: Any) -> Any:
    """Return parameters of an operation, with the time of the moved clock where they leave it to the database."""
    if "now" not in params or params["now"] is not None:
        return params
    return {**params, "now": engine.dump_time(now())}
