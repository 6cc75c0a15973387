"""The result backend: results of tasks, and how far tasks are."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from pydantic_core import PydanticSerializationError
from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError, ResultSetError

from tablequeue.contrib.outages import lasting
from tablequeue.contrib.task_results import Store
from tablequeue.errors import BadInput, BadPayload
from tablequeue.model.pacing import Duration, in_seconds

DAY = 86400.0
# Seconds between two writes of the progress of one task, unless its state changes.
PROGRESS_EVERY = 1.0


class ResultBackend(AsyncResultBackend[Any]):
    """Keeps results of taskiq, and the progress that tasks report, as JSON in a table of a database.

    url       the URL for `tablequeue.connect`; it may be the broker's. The connection is made by `startup`.
    expires   how long a result, and a progress, is kept: seconds, or a timedelta.

    A result is stored when `set_result` has returned, and survives the death of any process. The result of a task that
    has succeeded is never replaced, because a message may be delivered again. Progress is written once a second for
    each task, and when its state changes; reports in between are dropped.
    """

    def __init__(self, url: Any, *, expires: Duration = DAY) -> None:
        self._url = str(url)
        self._expires = in_seconds(expires)
        self._opened: Store | None = None
        self._reported: dict[str, tuple[str, float]] = {}
        """The last state that each task of this process has reported, and its time."""

    async def startup(self) -> None:
        """Connect, and make the table if it does not exist."""
        self._opened = await asyncio.to_thread(Store, self._url)

    async def shutdown(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)
            self._opened = None

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        """Keep the result; if it is not JSON, or too large for the database, keep an error that says so.

        It waits until an outage is over: taskiq would go on without the result.
        """
        self._reported.pop(task_id, None)
        try:
            await self._put(task_id, result)
        except (PydanticSerializationError, BadPayload) as error:
            words = f"The result of the task cannot be kept as JSON: {error}"
            failed = result.model_copy(update={"is_err": True, "return_value": None, "error": TypeError(words)})
            await self._put(task_id, failed)

    async def _put(self, task_id: str, result: TaskiqResult[Any]) -> None:
        body = result.model_dump_json().encode()
        success = not result.is_err
        await lasting(lambda: asyncio.to_thread(self._store.put, task_id, body, self._expires, success))

    async def is_result_ready(self, task_id: str) -> bool:
        """Return whether the result is stored."""
        return await self._read(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        """Return the result. `ResultGetError` if there is none, or it has expired."""
        body = await self._read(task_id)
        if body is None:
            raise ResultGetError
        result = TaskiqResult[Any].model_validate_json(body)
        return result if with_logs else result.model_copy(update={"log": None})

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Keep how far a task is. `ResultSetError` if that cannot be written as JSON."""
        state, now = str(progress.state), monotonic()
        before, at = self._reported.get(task_id, ("", 0.0))
        if state == before and now < at + PROGRESS_EVERY:
            return
        try:
            body = progress.model_dump_json()
        except PydanticSerializationError as error:
            raise ResultSetError from error
        self._reported[task_id] = state, now
        await asyncio.to_thread(self._store.put, _of_progress(task_id), body.encode(), self._expires, False)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return the last report of a task; None if it has made none."""
        body = await self._read(_of_progress(task_id))
        return None if body is None else TaskProgress[Any].model_validate_json(body)

    # -- private -----------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        if self._opened is None:
            raise BadInput("The result backend has not been started.", "Await the startup() of its broker first.")
        return self._opened

    async def _read(self, key: str) -> bytes | None:
        return (await asyncio.to_thread(self._store.read, [key])).get(key)


def _of_progress(task_id: str) -> str:
    return f"progress of {task_id}"
