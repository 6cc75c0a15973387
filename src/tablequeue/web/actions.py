"""Requests that change something: log in and out, and, if actions are allowed, change queues and messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from tablequeue.errors import BadInput
from tablequeue.verbs.maintain import ALL, Which
from tablequeue.web import search
from tablequeue.web.guard import COOKIE
from tablequeue.web.render import Site, link_of, name_of

log = logging.getLogger("tablequeue.serve")
N = TypeVar("N", int, float)

# The actions of a form on dead letters: the past participle, and the verb of the queue.
VERBS = {"redrive": ("redriven", "redrive"), "purge": ("purged", "purge_dead")}
# Maximum number of dead letters that a form can name.
MOST_IDS = 1000


async def login(site: Site, request: Request) -> Response:
    form = await _form(site, request)
    if not site.session.opens(str(form.get("token", "")).strip()):
        client = _address(request)
        log.warning("login refused, from %s", client, extra={"client": client})
        return site.page(request, "login.html", 403, next=str(form.get("next", "/")), wrong=True)
    there = str(form.get("next", "/"))
    # Only paths of this site: a browser takes //host and /\host for other sites.
    if not there.startswith("/") or there.startswith(("//", "/\\")):
        there = "/"
    answer = RedirectResponse(there, 303)
    secure = site.secure or request.url.scheme == "https"
    answer.set_cookie(COOKIE, site.session.begin(), httponly=True, samesite="strict", secure=secure)
    return answer


async def logout(site: Site, request: Request) -> Response:
    await _form(site, request)
    site.session.end(request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


async def dead(site: Site, request: Request) -> Response:
    """Redrive or purge dead letters: by the ids in the form, or all if the form says so.

    If the form has the text of a search, all means all that the search finds.
    """
    _need_actions(site)
    form = await _form(site, request)
    action = VERBS.get(str(form.get("verb")))
    ids = [int(id) for id in map(str, form.getlist("id")) if id.isascii() and id.isdigit() and len(id) <= 18]
    everything, text = form.get("all") == "all", str(form.get("q", ""))
    if action is None or not (ids or everything):
        raise BadInput("No dead letter is selected.", "Go back and select some, or all.")
    done, verb = action
    name = name_of(request)

    def call_verb() -> int:
        queue = site.database.consumer(name)
        which: Which = ALL if everything and not text else ids
        if everything and text:
            which = search.ids(queue, "dead", text)
        return int(getattr(queue, verb)(which))

    number = await run_in_threadpool(call_verb)
    chosen = (f"all with {text!r}" if text else "all") if everything else ids
    _note(site, request, name, f"{number} dead letters {done}", number=number, ids=chosen)
    return _messages(name, form, "dead", done, number)


async def cancel(site: Site, request: Request) -> Response:
    """Cancel a message, or tell its consumer to stop."""
    _need_actions(site)
    form = await _form(site, request)
    name, id = name_of(request), int(request.path_params["id"])
    account = await run_in_threadpool(lambda: site.database.consumer(name).cancel(id))
    if account.unknown:
        raise BadInput(f"Message {id} is not in the queue any more.", "It may be finished: look at the history.")
    _note(site, request, name, f"message {id} {'told to stop' if account.in_progress else 'cancelled'}")
    return _messages(name, form, *(("in_progress", "told", 1) if account.in_progress else ("ready", "cancelled", 1)))


async def cancel_batch(site: Site, request: Request) -> Response:
    """Cancel the messages of a batch of the queue, and tell the consumers of the others to stop."""
    _need_actions(site)
    await _form(site, request)
    name, id = name_of(request), int(request.path_params["id"])

    def call_verb() -> int:
        batch = site.database.batch(id)
        if batch.queue != name:
            raise BadInput(f"Batch {id} is of the queue {batch.queue}.", "Go back to the page of that queue.")
        return batch.cancel()

    number = await run_in_threadpool(call_verb)
    _note(site, request, name, f"batch {id} cancelled", number=number)
    return RedirectResponse(f"{link_of(name)}?batch={number}", 303)


async def pause(site: Site, request: Request) -> Response:
    """Pause the claims of a queue until they are resumed, or resume them."""
    _need_actions(site)
    form = await _form(site, request)
    name, verb = name_of(request), str(form.get("verb"))
    if verb not in ("pause", "resume"):
        raise BadInput("The form does not say what to do.", "Go back and choose pause or resume.")
    await run_in_threadpool(lambda: getattr(site.database.consumer(name), verb)())
    _note(site, request, name, f"queue {verb}d")
    return RedirectResponse(link_of(name), 303)


async def run_schedule(site: Site, request: Request) -> Response:
    """Have a worker push the message of a schedule."""
    _need_actions(site)
    await _form(site, request)
    name = request.path_params["schedule"]
    await run_in_threadpool(lambda: site.overview.run_again(name))
    _note(site, request, name, "schedule is run again")
    return RedirectResponse(f"/schedules?{urlencode({'run': name})}", 303)


async def reschedule(site: Site, request: Request) -> Response:
    """Change the due time of a waiting message, or its priority; an empty field changes nothing."""
    _need_actions(site)
    form = await _form(site, request)
    name, id = name_of(request), int(request.path_params["id"])
    delay, priority = _number(form, "delay", float), _number(form, "priority", int)
    await run_in_threadpool(lambda: site.database.consumer(name).reschedule(id, delay=delay, priority=priority))
    _note(site, request, name, f"message {id} rescheduled")
    sought = {"q": form["q"]} if form.get("q") else {}
    return RedirectResponse(f"{link_of(name)}/messages/{id}?{urlencode({'rescheduled': 1, **sought})}", 303)


def _note(site: Site, request: Request, queue: str, words: str, **more: Any) -> None:
    """Log an action on a queue, with the visitor's address, and the name if a proxy gives one."""
    client, user = _address(request), site.user_of(request)
    by = f", by {user}" if user else ""
    log.info(
        "%s: %s%s, from %s", queue, words, by, client, extra={"queue": queue, "client": client, "user": user, **more}
    )


def _address(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"


def _messages(name: str, form: FormData, state: str, done: str, number: int) -> Response:
    """Return to the messages of the queue, with the search from which the form was sent, and show what was done."""
    sought = {field: form[field] for field in ("q", "from") if form.get(field)}
    return RedirectResponse(f"{link_of(name)}/messages?{urlencode({'state': state, **sought, done: number})}", 303)


def _number(form: FormData, name: str, kind: Callable[[str], N]) -> N | None:
    """Return the number of a field; None if it is empty."""
    text = str(form.get(name, "")).strip()
    try:
        return kind(text) if text else None
    except ValueError:
        raise BadInput(f"{name} is {text[:40]!r}.", "Go back and give a number.") from None


def _need_actions(site: Site) -> None:
    if not site.allow_actions:
        raise HTTPException(403, "This dashboard is read-only: start it with --allow-actions.")


async def _form(site: Site, request: Request) -> FormData:
    """Return the fields of a form. Refuses forms that no page of this dashboard has sent."""
    try:
        form: Any = await request.form(max_fields=MOST_IDS + 10, max_files=0)
    except ClientDisconnect:
        raise HTTPException(400, "The form did not come.") from None  # nobody reads it
    if not site.session.wrote(form.get("csrf")):
        raise HTTPException(403, "The form is older than this run of the dashboard: load the page again.")
    return form
