"""The result backend: results, groups and chords of Celery, by the store of its URL."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Condition, local
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from celery import states
from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
from celery.backends.base import BaseKeyValueStoreBackend
from celery.canvas import Signature, maybe_signature
from celery.exceptions import ChordError
from celery.result import GroupResult, ResultSet, allow_join_result
from celery.utils.functional import _regen
from kombu.exceptions import EncodeError
from kombu.utils.encoding import bytes_to_str, ensure_bytes
from kombu.utils.functional import retry_over_time

from tablequeue.contrib.celery.waiting import Waiting
from tablequeue.contrib.kombu.store import gathered
from tablequeue.contrib.task_results import Returned, Store, store_of
from tablequeue.errors import TRANSIENT, TablequeueError

T = TypeVar("T")

logger = logging.getLogger("tablequeue.contrib.celery")

# Seconds of the claim on a complete chord, besides twice the time for joining its results: within them the callback is
# sent. If the process that claimed it was killed, another one may claim it after that.
CLAIM = 30.0
# The index of a part without one: after the others.
LAST = 2**31 - 1


class ResultConsumer(BaseResultConsumer):
    """Waits for results: one thread of a process looks, and the others wait for the results that it finds."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begin()
        _consumers.add(self)

    def begin(self) -> None:
        """Wait for nothing yet: a forked child has the results of its parent, but none of its threads."""
        self._state = Condition()
        self._looking = False
        self._deliveries = 0
        self._seen = local()
        self.__dict__.pop("_waiting", None)

    @cached_property
    def _waiting(self) -> Waiting:
        return Waiting(self.backend.store)

    def consume_from(self, task_id: str) -> None:
        self._waiting.add(self.backend.get_key_for_task(task_id))

    def cancel_for(self, task_id: str) -> None:
        self._waiting.discard(self.backend.get_key_for_task(task_id))

    def start(self, initial_task_id: str, **options: Any) -> None:
        self.consume_from(initial_task_id)

    def on_wait_for_pending(self, result: Any, **options: Any) -> None:
        """Look at once: an existing result is returned whatever the time-out."""
        self._seen.deliveries = self._deliveries
        results = result.results if isinstance(result, ResultSet) else [result]
        missing = [each.id for each in results if getattr(each, "_cache", True) is None]
        self._waiting.renew(map(self.backend.get_key_for_task, missing))
        while self._waiting.has_new:
            self._deliver(self._waiting.look)

    def drain_events(self, timeout: float | None = None) -> None:
        """Wait until a result has come to any thread since the last call in this one, these seconds at the most.

        A look that finds nothing does not end the wait: after each one, Celery reads every parent of a result that has
        not come, one by one. On SQLite every commit calls for a look.
        """
        end = monotonic() + (1.0 if timeout is None else timeout)
        seen = getattr(self._seen, "deliveries", self._deliveries)
        while self._deliveries == seen and (left := end - monotonic()) > 0:
            self._deliver(partial(self._waiting.wait, left), left)
        self._seen.deliveries = self._deliveries

    def on_state_change(self, meta: dict[str, Any], message: Any) -> None:
        super().on_state_change(meta, message)
        if meta["status"] in states.READY_STATES:
            self.cancel_for(meta["task_id"])

    def _deliver(self, look: Callable[[], list[bytes]], timeout: float | None = None) -> None:
        with self._state:
            if self._looking:  # the result that the other thread finds may be ours
                self._state.wait(1.0 if timeout is None else timeout)
                return
            self._looking = True
        try:
            found = look()
        finally:
            with self._state:
                self._looking = False
                self._state.notify_all()
        for body in found:  # the function called then may wait for results too
            self.on_state_change(self.backend.decode_result(body), None)
        if found:
            self._deliveries += 1
            self._waiting.end_wait()
        self._waiting.tidy()
        self.backend.finish_abandoned()


_consumers: WeakSet[ResultConsumer] = WeakSet()


def _after_fork() -> None:
    for consumer in [*_consumers]:
        consumer.begin()


os.register_at_fork(after_in_child=_after_fork)


class Backend(BaseKeyValueStoreBackend, AsyncBackendMixin):
    """Keeps results in the database of a URL, as `tablequeue+postgresql://user:password@host/database`.

    A result, and the note that its part of a chord has returned, are one transaction. One of the parts of a chord sends
    the callback.
    """

    key_t = staticmethod(bytes_to_str)
    supports_autoexpire = True
    supports_native_join = True
    supports_result_compression = True
    supports_failure_expires = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        failure_expires = app.conf.get("result_failure_expires")
        self.failure_expires = self.expires if failure_expires is None else self.prepare_expires(failure_expires)
        self.result_consumer = ResultConsumer(self, app, self.accept, self._pending_results, self._pending_messages)
        self._local = _Local()

    @cached_property
    def store(self) -> Store:
        return store_of(self.url)

    def as_uri(self, include_password: bool = False) -> str:
        return f"tablequeue+{self.url if include_password else self.store.url}"

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "expires": self.expires, "url": self.url})

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        return isinstance(exc, TRANSIENT)

    # -- results -----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        return self.store.read([key]).get(key)

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        found = self.store.read(keys)
        return [found.get(key) for key in keys]

    def set(self, key: str, value: Any) -> None:
        self._ensure(self.store.put, key, ensure_bytes(value), self.expires, False)

    def delete(self, key: str) -> None:
        self.store.forget(key)

    def forget(self, task_id: str) -> None:
        super().forget(task_id)
        self.result_consumer.cancel_for(task_id)

    def cleanup(self) -> None:
        """Delete all results that have expired. Processes that store results delete some from time to time, too."""
        while self.store.expire():
            pass

    def mark_as_done(self, task_id: str, result: Any, request: Any = None, *args: Any, **options: Any) -> None:
        with self._returning():
            super().mark_as_done(task_id, result, request, *args, **options)

    def mark_as_failure(self, task_id: str, exc: Any, *args: Any, **options: Any) -> None:
        with self._returning():
            super().mark_as_failure(task_id, exc, *args, **options)

    def _store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **options: Any
    ) -> Any:
        """Keep a result, unless the task has succeeded before. At the end of a part of a chord, note that with it."""
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = bytes_to_str(task_id)
        part = self._part(request, state, result) if self._local.returning else None
        self._ensure(
            self.store.put,
            self.get_key_for_task(task_id),
            ensure_bytes(self.encode(meta)),
            self.failure_expires if state == states.FAILURE else self.expires,
            state == states.SUCCESS,
            part,
        )
        self._local.noted = part
        self.finish_abandoned()
        return result

    # -- chords ------------------------------------------------------------------------------------------------------

    def apply_chord(self, header_result_args: Any, body: Any, **options: Any) -> None:
        """Begin the chord. The results of a header with nested groups are kept, to restore the nesting."""
        chord = self.get_key_for_group(header_result_args[0])
        try:
            callback = ensure_bytes(self.encode([bytes_to_str(header_result_args[0]), body]))
        except EncodeError:  # its arguments are for another serializer
            callback = None
        self._ensure(self.store.open_chord, chord, callback, self._chord_expiry)
        if not isinstance(header_result_args[1], _regen):
            header = self.app.GroupResult(*header_result_args)
            if any(isinstance(result, GroupResult) for result in header.results):
                self.save_group(header.id, header)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        self._ensure(self.store.size_chord, self.get_key_for_group(group_id), chord_size, self._chord_expiry)

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        self.store.add_to_chord(self.get_key_for_group(chord_id), self._chord_expiry)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        """Note the part, unless its result was kept with it; and send the callback if it was the last one."""
        part = self._part(request, state, self.encode_result(result, state))
        if part is None:
            return
        if part != self._local.noted:
            self._ensure(self.store.note, part, self._chord_expiry)
        self._finish(request.group, request.chord)

    @property
    def _chord_expiry(self) -> float | None:
        expires: float | None = getattr(self, "chord_expires", self.expires)  # Celery has this from 5.7 on
        return expires

    def _part(self, request: Any, state: str, result: Any) -> Returned | None:
        """Return the value that a part of a chord has returned; None if the task is not such a part."""
        if not request or not request.chord or not request.group or not request.id:
            return None
        place = LAST if request.group_index is None else request.group_index
        body = ensure_bytes(self.encode([bytes_to_str(request.id), state, result]))
        # A signature that is used twice in a header has one id, but counts as two parts.
        return Returned(self.get_key_for_group(request.group), f"{request.id}:{place}", place, body)

    def _finish(self, group_id: str, callback: Any) -> None:
        """Claim a chord if it is complete; then send its callback, or its error, and end it.

        If the broker is in the database of the results, the callback is pushed in the transaction that ends the chord.
        """
        chord, token = self.get_key_for_group(group_id), uuid4().hex
        lease = CLAIM + 2 * (self.app.conf.result_chord_join_timeout or 0.0)
        if not self._ensure(self.store.claim, chord, token, lease):
            return
        signature = maybe_signature(callback, app=self.app)
        try:
            with gathered(self.url) as pushes:
                try:
                    self._send(signature, self._ensure(self._joined, group_id))
                except ChordError as error:
                    logger.exception("Chord %r raised: %r", group_id, error)
                    self.chord_error_from_stack(signature, error)
            if not self._ensure(self.store.end, chord, token, pushes):
                logger.warning("The claim of chord %r was lost: another process sends the callback.", group_id)
        except TablequeueError as error:
            logger.exception("The callback of chord %r was not sent: %s It is tried again.", group_id, error)

    def finish_abandoned(self) -> None:
        """Finish chords if their last part was killed before it could. If the database is away, a later look tries."""
        try:
            for body in self.store.abandoned():
                self._finish(*self.decode(body))
        except TRANSIENT as error:
            logger.warning("%s Looking for complete chords again later.", error)

    def _joined(self, group_id: str) -> list[Any]:
        """Return the results of the header. `ChordError` if a part has failed, or the results cannot be joined."""
        try:
            header = GroupResult.restore(group_id, backend=self, app=self.app)
            if header is None:
                return [*map(self._unpacked, self.store.returned(self.get_key_for_group(group_id)))]
            header.on_ready()
            with allow_join_result():
                return header.join_native(timeout=self.app.conf.result_chord_join_timeout, propagate=True)
        except (ChordError, *TRANSIENT):
            raise
        except Exception as error:
            raise ChordError(f"Join error: {error!r}") from error

    def _unpacked(self, body: bytes) -> Any:
        task_id, state, result = self.decode(body)
        if state in states.EXCEPTION_STATES:
            result = self.exception_to_python(result)
        if state in states.PROPAGATE_STATES:
            raise ChordError(f"Dependency {task_id} raised {result!r}") from (
                result if isinstance(result, Exception) else None
            )
        return result

    def _send(self, callback: Signature, results: list[Any]) -> None:
        try:
            callback.delay(results)
        except Exception as error:
            raise ChordError(f"Callback error: {error!r}") from error

    # -- private -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _returning(self) -> Iterator[None]:
        """Note the return value of a part of a chord with the result that is kept in the block."""
        self._local.returning, self._local.noted = True, None
        try:
            yield
        finally:
            self._local.returning, self._local.noted = False, None

    def _ensure(self, call: Callable[..., T], *args: Any) -> T:
        """Make a call, again and again while the database is away, as `retry_policy` says."""
        policy = {**self.retry_policy, **self._options.get("retry_policy", {})}
        result: T = retry_over_time(call, TRANSIENT, args, {}, _report, **policy)
        return result

    @cached_property
    def _options(self) -> dict[str, Any]:
        return self.app.conf.get("result_backend_transport_options", {})


class _Local(local):
    """The next action of a thread."""

    returning = False
    noted: Returned | None = None
    """The part that was noted with the last result."""


def _report(error: Exception, intervals: Iterator[float], retries: int) -> float:
    pause = next(intervals)
    logger.error("%s Trying again in %.1f s.", error, pause)
    return pause
