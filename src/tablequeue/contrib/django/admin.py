"""The admin: the tasks of each queue by their state, found by a text, all details of one task, and what changes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from tablequeue.contrib.django import results
from tablequeue.contrib.django.backend import backends, named
from tablequeue.contrib.django.models import Task
from tablequeue.errors import QueueNotFound, TablequeueError
from tablequeue.model.message import Message
from tablequeue.queue import Queue

PAGE = 100
# Tasks that a search reads at most: no index has their text.
MOST_READ = 10_000
STATES = ("ready", "scheduled", "in_progress", "dead", "history")


@admin.register(Task)
class TaskAdmin(admin.ModelAdmin):
    """Pages of tasks, read and changed by the verbs of their queues. Changes need the permission to change tasks."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Find nothing for the pages of `ModelAdmin` itself, as history: the model has no table."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the tasks of a queue in a state, and retry, cancel or run at once chosen tasks."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        names = _names()
        queue = _queue(request.GET.get("queue", next(iter(names), "")))
        state = request.GET.get("state", "ready")
        if state not in STATES:
            raise Http404
        if request.method == "POST":
            self._change(request, queue, list(map(_number, request.POST.getlist("id"))))
            return HttpResponseRedirect(request.get_full_path())
        edge, text = _number(request.GET.get("from", "0")), request.GET.get("q", "").strip()
        found, after = _search(queue, state, edge, text.casefold())
        stats = queue.stats()
        context = {
            "queues": names.items(),
            "queue": queue.name,
            "text": text,
            "counts": [(each, None if each == "history" else getattr(stats, each)) for each in STATES],
            "state": state,
            "rows": [_row(queue, message) for message in found],
            "next": after,
            "may_change": self.has_change_permission(request),
            "title": f"Tasks of {names[queue.name]}",
        }
        return self._page(request, "list", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show one task, by its queue and the id of its message, and retry it, cancel it or run it at once."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        queue = _queue(object_id.rpartition("/")[0])
        message = queue.find(_number(object_id.rpartition("/")[2]))
        if message is None:
            raise Http404
        if request.method == "POST":
            self._change(request, queue, [message.id])
            return HttpResponseRedirect(request.path)
        value = results.value_of(queue, message.id) if message.state == "finished" else None
        name = _names()[queue.name]
        context = {
            "queue": queue.name,
            "name": name,
            "message": message,
            "row": _row(queue, message),
            "payload": json.dumps(message.payload, indent=2, ensure_ascii=False, default=str),
            "value": json.dumps(value, indent=2, ensure_ascii=False) if message.state == "finished" else None,
            "may_change": self.has_change_permission(request),
            "title": f"{name} {message.id}",
        }
        return self._page(request, "task", context)

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        shared = {**self.admin_site.each_context(request), "opts": self.opts}
        return TemplateResponse(request, f"admin/tablequeue/{template}.html", shared | context)

    def _change(self, request: HttpRequest, queue: Queue, ids: Sequence[int]) -> None:
        if not self.has_change_permission(request):
            raise PermissionDenied
        try:
            if "retry" in request.POST:
                self.message_user(request, f"{queue.redrive(ids) if ids else 0} tasks are tried again.")
            elif "now" in request.POST:
                for id in ids:
                    queue.reschedule(id, delay=0)
                self.message_user(request, f"{len(ids)} tasks are run as soon as a worker is free.")
            elif "cancel" in request.POST:
                done = queue.cancel(ids)
                words = f"{len(done.cancelled)} tasks are cancelled, {len(done.in_progress)} that run are told to stop."
                self.message_user(request, words)
        except TablequeueError as error:
            self.message_user(request, str(error), messages.ERROR)


def _names() -> dict[str, str]:
    """Return the table queues, each with its name in the settings; of several backends also the alias."""
    several = len(backends()) > 1
    return {
        backend.table_queue(name): f"{backend.alias}: {name}" if several else name
        for backend in backends()
        for name in sorted(backend.queues)
    }


def _search(queue: Queue, state: Any, edge: int, text: str) -> tuple[list[Message], int | None]:
    """Return up to a page of messages with a text, and where the next page begins; None after the last message."""
    found: list[Message] = []
    for _ in range(MOST_READ // PAGE):
        piece = _piece(queue, state, edge)
        for message in piece:
            if len(found) == PAGE:
                return found, edge
            edge = message.id
            if not text or _contains(message, text):
                found.append(message)
        if len(piece) < PAGE:
            return found, None
    return found, edge


def _piece(queue: Queue, state: Any, edge: int) -> list[Message]:
    if state == "history":
        return queue.history(PAGE, after=edge or None)
    return queue.peek(PAGE, state=state, after=edge)


def _contains(message: Message, text: str) -> bool:
    words = (json.dumps(message.payload, ensure_ascii=False, default=str), *(error.error for error in message.errors))
    return any(text in each.casefold() for each in words)


def _arguments(payload: dict[str, Any]) -> str:
    """Return the arguments of a task as a call has them."""
    args, kwargs = payload.get("args") or (), payload.get("kwargs") or {}
    words = [json.dumps(each, ensure_ascii=False, default=str) for each in (*args, *kwargs.values())]
    names = [""] * len(args) + [f"{name}=" for name in kwargs]
    return ", ".join(name + word for name, word in zip(names, words, strict=True))


def _row(queue: Queue, message: Message) -> dict[str, Any]:
    payload = message.payload if isinstance(message.payload, dict) else {}
    return {
        "message": message,
        "task": payload.get("task", "?"),
        "arguments": _arguments(payload),
        "error": message.errors[-1].error.strip().rpartition("\n")[2] if message.errors else "",
        "cancels": message.state in ("ready", "scheduled", "in_progress", "dead"),
        "url": reverse("admin:tablequeue_task_change", args=[f"{queue.name}/{message.id}"]),
    }


def _queue(name: str) -> Queue:
    try:
        backend, queue_name = named(name)
    except QueueNotFound:
        raise Http404 from None
    return backend.queue(queue_name)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Http404
    return int(text)
