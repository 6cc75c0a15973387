"""Pages from templates: what all of them share, and how values are shown in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tablequeue.database import Database
from tablequeue.message import AttemptError, Message
from tablequeue.web import plots
from tablequeue.web.guard import Session

# Characters of a payload or an error that a page shows; all of it can be downloaded.
LONGEST = 20_000
PREVIEW = 200
# What stands where there is no value.
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Site:
    """What every page needs."""

    database: Database
    session: Session
    name: str
    allow_actions: bool
    templates: Environment = field(default_factory=lambda: _environment())

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        text = self.templates.get_template(template).render(site=self, path=request.url.path, **values)
        return HTMLResponse(text, status)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tablequeue.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "rate": rate,
        "duration": duration,
        "time": time,
        "preview": preview,
        "last_error": last_error,
    }
    environment.globals |= {"spark": plots.spark, "flow": plots.flow}
    return environment


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Messages a second, or a minute where they are few."""
    if not value:
        return NOTHING if value is None else "0"
    if value < 0.1:
        return f"{value * 60:.2g}/min"
    return f"{value:.1f}/s" if value < 100 else f"{number(round(value))}/s"


_UNITS = ((86400 * 3, 86400, "d"), (3600 * 3, 3600, "h"), (180, 60, "min"))


def duration(value: float | timedelta | None) -> str:
    """With two digits or so, in the unit that people would say."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for least, size, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.2g} ms" if seconds >= 0.001 else "< 1 ms"


def time(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def payload_text(payload: Any, *, pretty: bool = False) -> str:
    """A payload for people: JSON, text, or bytes as Python writes them."""
    if isinstance(payload, bytes):
        return repr(payload)[2:-1]
    if isinstance(payload, str) and not pretty:
        return payload
    return json.dumps(payload, ensure_ascii=False, indent=2 if pretty else None)


def preview(message: Message) -> str:
    text = payload_text(message.payload)
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "…"


def last_error(message: Message | AttemptError) -> str:
    """The last line of the last error: of a traceback, the exception."""
    error = message.error if isinstance(message, AttemptError) else message.errors[-1].error if message.errors else ""
    lines = error.strip().splitlines()
    return lines[-1][:PREVIEW] if lines else ""
