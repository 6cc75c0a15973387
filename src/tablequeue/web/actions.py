"""What can be done: log in and out, and, where actions are allowed, redrive and purge dead letters."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tablequeue.errors import BadInput
from tablequeue.web.guard import COOKIE
from tablequeue.web.render import Site

log = logging.getLogger("tablequeue.serve")

# What a form may do with dead letters, and the verb of the queue that does it.
VERBS = {"redrive": ("redriven", "redrive"), "purge": ("purged", "purge_dead")}
# Dead letters that a form may name.
MOST = 1000


async def login(site: Site, request: Request) -> Response:
    form = await _form(site, request)
    if not site.session.opens(str(form.get("token", "")).strip()):
        log.warning("login refused", extra={"client": request.client and request.client.host})
        return site.page(request, "login.html", 403, next=str(form.get("next", "/")), wrong=True)
    there = str(form.get("next", "/"))
    # A path of ours: //elsewhere and /\elsewhere are others' to a browser.
    if not there.startswith("/") or there.startswith(("//", "/\\")):
        there = "/"
    answer = RedirectResponse(there, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, site.session.cookie, httponly=True, samesite="strict", secure=secure)
    return answer


async def logout(site: Site, request: Request) -> Response:
    await _form(site, request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


async def dead(site: Site, request: Request) -> Response:
    """Redrive or purge dead letters: those of the ids, or all of them if the form says so."""
    if not site.allow_actions:
        raise HTTPException(403, "This dashboard is read-only: start it with --allow-actions.")
    form = await _form(site, request)
    action = VERBS.get(str(form.get("verb")))
    ids = [int(id) for id in map(str, form.getlist("id")) if id.isascii() and id.isdigit() and len(id) <= 18]
    everything = form.get("all") == "all"
    if action is None or bool(ids) == everything:
        raise BadInput("No dead letter is chosen.", "Go back and choose some, or all of them.")
    done, verb = action
    name = request.path_params["queue"]

    def act() -> int:
        return getattr(site.database.queue(name), verb)(None if everything else ids)

    number = await run_in_threadpool(act)
    log.info("dead letters %s", done, extra={"queue": name, "number": number, "ids": ids or "all"})
    return RedirectResponse(f"/queues/{quote(name)}/messages?state=dead&{done}={number}", 303)


async def _form(site: Site, request: Request) -> FormData:
    """The fields of a form that one of our pages has sent."""
    form: Any = await request.form(max_fields=MOST + 10, max_files=0)
    if not site.session.wrote(form.get("csrf")):
        raise HTTPException(403, "The form is not of this run of the dashboard: load the page again.")
    return form
