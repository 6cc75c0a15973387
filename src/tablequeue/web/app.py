"""The dashboard as an ASGI application: its routes, and its error pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tablequeue.database import Database, overview_of
from tablequeue.errors import BadInput, BadName, BatchNotFound, Locked, QueueNotFound, TablequeueError, Unreachable
from tablequeue.observe.health import PATHS, Health
from tablequeue.web import actions, pages
from tablequeue.web.guard import Guard, Session
from tablequeue.web.metrics import health
from tablequeue.web.render import Site

SHORTEST_TOKEN = 16
# The pages of each queue, and of each subscription.
OF_QUEUE: tuple[tuple[Any, ...], ...] = (
    ("", pages.queue),
    ("/messages", pages.messages),
    ("/messages/{id:int}", pages.message),
    ("/messages/{id:int}/payload", pages.payload),
    ("/dead", actions.dead, "POST"),
    ("/pause", actions.pause, "POST"),
    ("/batches/{id:int}/cancel", actions.cancel_batch, "POST"),
    ("/messages/{id:int}/cancel", actions.cancel, "POST"),
    ("/messages/{id:int}/reschedule", actions.reschedule, "POST"),
)


def dashboard(
    database: Database,
    *,
    name: str,
    token: str | None = None,
    loopback: bool = True,
    public_url: str | None = None,
    allow_actions: bool = False,
    user_header: str | None = None,
) -> Starlette:
    """Return the dashboard of a database. It uses the public verbs, and is read-only unless `allow_actions`.

    name      the name of the database on the pages.
    token     a secret that visitors must give, in a form or as `Authorization: Bearer`; None: visitors need none.
    loopback  answer only requests for the names of this machine. Otherwise a web page could reach the dashboard by its
              own host name that points here.
    public_url  the URL of a proxy in front, as `https://queues.example.org`: requests for that host, and forms from its
                pages, are answered too.
    user_header   the header in which a proxy names the visitor, as `X-Forwarded-User`: the pages and the log of actions
                  have this name. The proxy must remove it from what visitors send; anybody could else give any name.

    Raises `BadInput` if the token is shorter than 16 characters, if there is none without `loopback` or with a
    `public_url`, and if `public_url` is not a URL of a host, or `user_header` not the name of a header.
    """
    public_url = None if public_url is None else _checked(public_url)
    if user_header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", user_header):
        raise BadInput(f"{user_header!r} is not the name of a header.", "Give it as X-Forwarded-User.")
    if token is None and (public_url or not loopback):
        raise BadInput("Without a token everybody could see the dashboard.", "Give one, or serve on 127.0.0.1.")
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise BadInput(f"The token has {len(token)} characters.", f"Give at least {SHORTEST_TOKEN} random ones.")
    session = Session(token)
    secure = public_url is not None and public_url.startswith("https:")
    site = Site(database, session, name, allow_actions, secure, user_header, overview_of(database))
    answers = health(database)

    def page(path: str, handler: Callable[..., Any], *methods: str) -> BaseRoute:
        return Route(path, partial(handler, site), methods=list(methods or ("GET",)))

    routes = [
        page("/", pages.overview),
        page("/workers", pages.workers),
        page("/schedules", pages.schedules),
        page("/schedules/{schedule:path}/run", actions.run_schedule, "POST"),
        page("/login", pages.login),
        page("/login", actions.login, "POST"),
        page("/logout", actions.logout, "POST"),
        *(Route(path, partial(_healthy, answers, path)) for path in PATHS),
        *(
            page(f"{path}{rest}", handler, *methods)
            for path in ("/queues/{queue}", "/topics/{topic}/{subscription}")
            for rest, handler, *methods in OF_QUEUE
        ),
        Mount("/static", StaticFiles(directory=str(resources.files("tablequeue.web") / "static"))),
    ]
    refused: Any = partial(_refused, site)
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, session=session, loopback=loopback, public_url=public_url)],
        exception_handlers={TablequeueError: refused, HTTPException: refused},
    )


_URL = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?")


def _checked(url: str) -> str:
    """Return the origin of a URL, as browsers write it."""
    parts = _URL.fullmatch(url.lower())
    if parts is None:
        raise BadInput(f"{url!r} is not the URL of a host.", "Give it as https://queues.example.org, without a path.")
    scheme, host, port = parts.groups()
    return f"{scheme}://{host}" + (port if port and port != {"http": ":80", "https": ":443"}[scheme] else "")


_STATUS: dict[type[TablequeueError], int] = {
    QueueNotFound: 404,
    BatchNotFound: 404,
    BadInput: 400,
    BadName: 400,
    Unreachable: 503,
    Locked: 503,
}


def _healthy(health: Health, path: str, request: Request) -> Response:
    answer = health.answer(path)
    assert answer is not None, "a path of PATHS"
    return Response(answer.body, answer.status, media_type=answer.type)


def _refused(site: Site, request: Request, error: Exception) -> Response:
    if isinstance(error, TablequeueError):
        status = _STATUS.get(type(error), 500)
        return site.page(request, "refused.html", status, cause=error.cause, remedy=error.remedy)
    assert isinstance(error, HTTPException)
    words = {403: "This is not allowed.", 404: "There is no such page."}
    cause = error.detail if error.status_code == 403 else words.get(error.status_code, error.detail)
    return site.page(request, "refused.html", error.status_code, cause=cause, remedy="")
