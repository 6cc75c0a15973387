"""The pages. They are plain functions, so that the server queries the database in a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tablequeue.errors import BadInput, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition
from tablequeue.model.message import Message
from tablequeue.model.names import subscription_of
from tablequeue.model.payload import Unreadable, json_text
from tablequeue.model.states import STATES
from tablequeue.topic import Topic
from tablequeue.verbs.batches import progress_of_open
from tablequeue.verbs.dependencies import waits
from tablequeue.verbs.progress import reported
from tablequeue.verbs.schedule import Entry
from tablequeue.verbs.sizes import added_a_day, sizes
from tablequeue.verbs.stats import Stats
from tablequeue.verbs.topics import Size, size
from tablequeue.web import search
from tablequeue.web.render import LONGEST, Site, name_of, payload_text
from tablequeue.worker.schedule import Schedule

T = TypeVar("T")
Shown = tuple[Definition, Stats]
"""A queue or a subscription, in a table of them."""

# Open batches that the page of a queue shows, the oldest ones.
MOST_BATCHES = 50
# The parameters that report an action, and the words for it on a page.
DONE = {
    "redriven": "redriven",
    "purged": "purged",
    "cancelled": "cancelled",
    "told": "told to stop",
    "rescheduled": "rescheduled",
    "batch": "cancelled or told to stop",
}
# The filters of the page of all queues, each with the condition of a queue to be shown.
FILTERS: dict[str, Callable[[Stats], Any]] = {
    **{state: attrgetter(state) for state in STATES},
    "paused": attrgetter("paused_until"),
}
# The windows of statistics that a page offers, in seconds.
WINDOWS = {300: "5 minutes", 3600: "1 hour", 86400: "1 day"}


def overview(site: Site, request: Request) -> Response:
    """Show all queues and topics; or only queues with a text in their names, or with messages in a state."""
    window = _window(request)
    text, state = request.query_params.get("q", "").strip(), request.query_params.get("state", "")
    if state and state not in FILTERS:
        raise BadInput(f"{state!r} is not a state to look for.", f"Choose one of: {', '.join(FILTERS)}.")

    def named(name: str) -> bool:
        return text.casefold() in name.casefold()

    def kept(found: list[Shown]) -> list[Shown]:
        return [each for each in found if FILTERS[state](each[1])] if state else found

    queues, refused = site.overview.look(window, named)

    def look(names: Iterable[str], stats: Callable[[str], T]) -> list[T]:
        found = []
        for name in names:
            try:
                found.append(stats(name))
            except TablequeueError as error:
                refused.append((name, error))  # one broken queue does not hide the others
        return found

    def of_queue(name: str) -> Shown:
        queue = site.database.consumer(name)
        return queue.definition, queue.stats(window=window)

    def of_topic(name: str) -> tuple[Topic, Size, list[Shown]]:
        topic = site.database.topic(name)
        names = [subscription_of(name, each) for each in topic.subscriptions()]
        return topic, size(context_of(topic)), kept(look(names if named(name) else filter(named, names), of_queue))

    def of_topics() -> list[tuple[Topic, Size, list[Shown]]]:
        found = look(site.database.topics(), of_topic)
        return [each for each in found if each[2] or (named(each[0].name) and not state)]

    return site.page(
        request,
        "overview.html",
        queues=kept([(table.definition, stats) for table, stats in queues]),
        topics=of_topics(),
        filter={"q": text, "state": state},
        filters=FILTERS,
        refused=refused,
        window=window,
        windows=WINDOWS,
    )


def workers(site: Site, request: Request) -> Response:
    window = _window(request)
    now, holders = site.overview.holders(window)
    return site.page(request, "workers.html", now=now, holders=holders, window=window, windows=WINDOWS)


def schedules(site: Site, request: Request) -> Response:
    now, found = site.overview.schedules()
    done = request.query_params.get("run", "")
    shown = [(entry, _next_due(entry, now)) for entry in found]
    return site.page(
        request, "schedules.html", now=now, schedules=shown, done=done if done in {e.name for e in found} else ""
    )


def queue(site: Site, request: Request) -> Response:
    queue = site.database.consumer(name_of(request))
    window = _window(request)
    stats = queue.stats(window=window)
    batches = progress_of_open(context_of(queue), MOST_BATCHES, 0) if stats.open_batches else {}
    return site.page(
        request,
        "queue.html",
        queue=queue,
        stats=stats,
        batches=batches,
        sizes=[(one, added_a_day(one, stats)) for one in sizes(context_of(queue).runner, context_of(queue).table)],
        window=window,
        windows=WINDOWS,
        done=_done(request),
    )


def messages(site: Site, request: Request) -> Response:
    queue = site.database.consumer(name_of(request))
    states = search.states(queue)
    state = request.query_params.get("state", "ready")
    if state not in states:
        raise BadInput(f"{state!r} is not a state of messages in this queue.", f"Choose one of: {', '.join(states)}.")
    text = request.query_params.get("q", "").strip()
    start = _whole(request, "from")
    page = search.search(queue, state, text, start)
    acting = site.allow_actions and state == "dead" and bool(page.messages)
    others = acting and bool(text) and (start is not None or page.next is not None)
    return site.page(
        request,
        "messages.html",
        queue=queue,
        stats=queue.stats(),
        states=states,
        state=state,
        text=text,
        start=start,
        found=page,
        acting=acting,
        all_found=len(search.ids(queue, state, text)) if others else len(page.messages),
        most_read=search.MOST_READ,
        progress=reported(context_of(queue), page.messages),
        waits=waits(context_of(queue), page.messages),
        same_id=_id_of(site, request, text),
        done=_done(request),
    )


def message(site: Site, request: Request) -> Response:
    queue = site.database.consumer(name_of(request))
    message = _find(site, request)
    text = payload_text(message.payload, pretty=queue.definition.payload == "json")
    return site.page(
        request,
        "message.html",
        queue=queue,
        message=message,
        progress=reported(context_of(queue), [message]).get(message.id),
        waits=waits(context_of(queue), [message]).get(message.id),
        text=text[:LONGEST],
        cut=max(len(text) - LONGEST, 0),
        longest=LONGEST,
        sought=request.query_params.get("q", ""),
        headers=json.dumps(message.headers, ensure_ascii=False, indent=2) if message.headers else "",
        done=_done(request),
    )


def payload(site: Site, request: Request) -> Response:
    """Send the complete payload as a file, so that a browser saves it and does not interpret it."""
    message = _find(site, request)
    content = message.payload
    if isinstance(content, Unreadable):
        content = content.data
    elif site.database.consumer(name_of(request)).definition.payload == "json":
        content = json_text(content)
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    name = quote(f"{name_of(request).replace('/', '-')}-{message.id}", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def login(site: Site, request: Request) -> Response:
    return site.page(request, "login.html", next=request.query_params.get("next", "/"), wrong=False)


# -- private ---------------------------------------------------------------------------------------------------------


def _next_due(entry: Entry, now: datetime) -> datetime | None:
    """Return when a schedule is due next; None without the package that reads its expression."""
    try:
        return Schedule(entry.name, entry.queue, entry.cron, None, entry.zone).next(now)
    except TablequeueError:
        return None


def _find(site: Site, request: Request) -> Message:
    queue = site.database.consumer(name_of(request))
    message = queue.find(request.path_params["id"]) if request.path_params["id"] < 1 << 62 else None
    if message is None:
        raise HTTPException(404)
    return message


def _id_of(site: Site, request: Request, text: str) -> int | None:
    """Return the text as an id, if a message in any state has that id."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    queue = site.database.consumer(name_of(request))
    return int(text) if search.has(queue, int(text)) else None


def _window(request: Request) -> int:
    window = _whole(request, "window") or min(WINDOWS)
    if window not in WINDOWS:
        raise BadInput(f"There is no window of {window} seconds.", f"Choose one of: {', '.join(map(str, WINDOWS))}.")
    return window


def _whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadInput(f"{name}={text!r} is not a whole number.", "Go back and follow a link of the page.")
    return int(text)


def _done(request: Request) -> tuple[str, Any] | None:
    """Return what the last action did, and to how many messages."""
    for verb, words in DONE.items():
        if (number := _whole(request, verb)) is not None:
            return words, number
    return None
