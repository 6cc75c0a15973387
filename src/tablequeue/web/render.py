"""Pages from templates: what all of them share, and how values are shown in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
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
        finalize=shown,
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
    return NOTHING if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Messages a second, or a minute where they are few."""
    if not value:
        return NOTHING if value is None else "0"
    if value < 0.1:
        return f"{value * 60:.2g}/min"
    return f"{value:.1f}/s" if value < 100 else f"{number(round(value))}/s"


# From how many seconds on a unit is used, its length in seconds, and its name.
_UNITS = ((3 * 86400, 86400, "d"), (2 * 3600, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0.001, 0.001, "ms"))


def duration(value: float | timedelta | None) -> str:
    """With three digits at most, in the unit that people would say."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for least, size, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return "< 1 ms" if seconds else "0 s"


def time(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def payload_text(payload: Any, *, pretty: bool = False) -> str:
    """A payload for people: JSON, text, or bytes as Python writes them."""
    if isinstance(payload, bytes):
        return repr(payload)[2:-1]
    if isinstance(payload, str) and not pretty:
        return payload
    return json.dumps(payload, ensure_ascii=False, indent=2 if pretty else None)


def shown(value: Any) -> Any:
    """Whatever a page shows, with what cannot be seen as its escape: some characters turn around what follows."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in value
    )


def preview(message: Message) -> str:
    text = payload_text(message.payload)
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "\N{HORIZONTAL ELLIPSIS}"


def last_error(message: Message | AttemptError) -> str:
    """The last line of the last error: of a traceback, the exception."""
    error = message.error if isinstance(message, AttemptError) else message.errors[-1].error if message.errors else ""
    lines = error.strip().splitlines()
    return lines[-1][:PREVIEW] if lines else ""
