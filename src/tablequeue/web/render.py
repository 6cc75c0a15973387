"""Renders templates: the values that all pages share, and the filters for values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tablequeue.database import Database
from tablequeue.model.attempts import AttemptError
from tablequeue.model.batch import BatchProgress
from tablequeue.model.message import Message
from tablequeue.model.names import subscription_of
from tablequeue.model.payload import Unreadable, json_text
from tablequeue.verbs.overview import Overview
from tablequeue.verbs.readable import (
    duration,
    estimates_of,
    in_progress,
    number,
    pauses_of,
    percent,
    rate,
    size,
    waiting,
)
from tablequeue.web import plots
from tablequeue.web.facts import facts
from tablequeue.web.guard import Session

# Maximum characters of a payload or an error on a page. A payload can be downloaded completely.
LONGEST = 20_000
PREVIEW = 200
LONGEST_USER = 200
# The numbers of a batch, in the order of its bar.
SHARES = ("finished", "in_progress", "waiting", "dead", "cancelled")


@dataclass(frozen=True)
class Site:
    """The values that every page needs."""

    database: Database
    session: Session
    name: str
    allow_actions: bool
    secure: bool
    """Whether browsers reach it by https."""
    user_header: str | None
    """The header in which a proxy names the visitor."""
    overview: Overview
    """Reads the numbers of all queues."""
    templates: Environment = field(default_factory=lambda: _environment())

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        shared = {"site": self, "path": quote(request.scope["path"]), "user": self.user_of(request)}
        return HTMLResponse(self.templates.get_template(template).render(**shared, **values), status)

    def user_of(self, request: Request) -> str | None:
        """Return the name that the proxy gives the visitor; None without one."""
        name = request.headers.get(self.user_header, "") if self.user_header else ""
        # Headers are bytes, which the framework has read as Latin 1.
        name = name.encode("latin-1").decode("utf-8", "replace")
        return "".join(filter(str.isprintable, name))[:LONGEST_USER] or None


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tablequeue.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "waiting": waiting,
        "in_progress": in_progress,
        "rate": rate,
        "duration": duration,
        "size": size,
        "time": time,
        "shares": shares,
        "json_text": json_text,
        "preview": preview,
        "last_error": last_error,
    }
    environment.globals |= {
        "spark": plots.spark,
        "flow": plots.flow,
        "bar": plots.bar,
        "progress_bar": plots.progress,
        "pauses_of": pauses_of,
        "estimates_of": estimates_of,
        "link_of": link_of,
        "facts": facts,
        "SHARES": SHARES,
    }
    return environment


def name_of(request: Request) -> str:
    """Return the name of the queue or of the subscription that a request is about."""
    path = request.path_params
    return path["queue"] if "queue" in path else subscription_of(path["topic"], path["subscription"])


def link_of(name: str) -> str:
    """Return the path of the page of a queue or a subscription."""
    return f"/{'topics' if '/' in name else 'queues'}/{quote(name)}"


def time(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def payload_text(payload: Any, *, pretty: bool = False) -> str:
    """Return a payload as text for people: JSON, text, or bytes as Python writes them."""
    if isinstance(payload, Unreadable):
        return str(payload)
    if isinstance(payload, bytes):
        return repr(payload)[2:-1]
    if isinstance(payload, str) and not pretty:
        return payload
    return json_text(payload, 2 if pretty else None)


def visible(value: Any) -> Any:
    """Escape invisible characters in a text: some reverse the text that follows. For every value on a page."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in value
    )


def shares(progress: BatchProgress) -> dict[str, int]:
    """Return the numbers of a batch, in the order of its bar."""
    return {name: getattr(progress, name) for name in SHARES}


def preview(message: Message) -> str:
    text = payload_text(message.payload)
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "\N{HORIZONTAL ELLIPSIS}"


def last_error(message: Message | AttemptError) -> str:
    """Return the last line of the last error. In a traceback this is the exception."""
    error = message.error if isinstance(message, AttemptError) else message.errors[-1].error if message.errors else ""
    lines = error.strip().splitlines()
    return lines[-1][:PREVIEW] if lines else ""
