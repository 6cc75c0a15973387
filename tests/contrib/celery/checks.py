"""The promises of the result backend, each as a function of a URL, so that mutants can be checked with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Barrier, Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, states
from celery.app.task import Context
from celery.exceptions import ChordError, TimeoutError
from celery.result import GroupResult

import tablequeue
from tablequeue.contrib import task_results as store
from tablequeue.contrib.celery import waiting
from tablequeue.errors import Unreachable
from tests.contrib.celery.app import made

PATIENCE = 10.0
"""Seconds in which an expected result comes."""


class Killed(BaseException):
    """In place of a process that is killed there."""


@contextmanager
def application(url: str) -> Iterator[Celery]:
    app = made(url)
    try:
        yield app
    finally:
        app.close()


class Chord:
    """A chord whose parts are run by the test; nobody runs its callback, whose messages `sent` counts."""

    def __init__(self, app: Celery, parts: int, callback: str = "total") -> None:
        self.backend: Any = app.backend
        self.url = self.backend.url
        self.id, self.ids = str(uuid4()), [str(uuid4()) for _ in range(parts)]
        self.callback = app.signature(callback)
        self.callback.freeze()
        self.backend.apply_chord((self.id, [app.AsyncResult(id) for id in self.ids]), self.callback)
        self.backend.set_chord_size(self.id, parts)

    def request(self, number: int) -> Context:
        return Context(id=self.ids[number], group=self.id, group_index=number, chord=self.callback)

    def succeed(self, number: int, result: Any = None, backend: Any = None) -> None:
        request = self.request(number)
        (backend or self.backend).mark_as_done(request.id, number if result is None else result, request=request)

    def sent(self) -> list[Any]:
        """Return the arguments of the callbacks that were sent."""
        db = tablequeue.connect(self.url)
        try:
            waiting = db.queue("celery").peek(100) if "celery" in db.queues() else []
            payloads = [json.loads(message.payload) for message in waiting]
            return [
                json.loads(each["body"])[0][0] for each in payloads if each["headers"]["root_id"] == self.callback.id
            ]
        finally:
            db.close()
            db.engine.dispose()


def check_results(url: str) -> None:
    """A result is there until it is forgotten; that of a success is never replaced, others are."""
    with application(url) as app:
        backend = app.backend
        for id in (str(uuid4()), "ä" * 300, "a b"):
            assert app.AsyncResult(id).state == states.PENDING
            backend.store_result(id, {"done": 1}, "HALF")
            assert app.AsyncResult(id).info == {"done": 1}
            backend.mark_as_failure(id, ValueError("odd"), "lines")
            assert (app.AsyncResult(id).state, app.AsyncResult(id).traceback) == (states.FAILURE, "lines")
            with pytest.raises(ValueError, match="odd"):
                app.AsyncResult(id).get(timeout=0)
            assert str(app.AsyncResult(id).get(timeout=0, propagate=False)) == "odd"
            backend.mark_as_done(id, [1, "\0"])
            backend.mark_as_failure(id, ValueError("late"))
            assert app.AsyncResult(id).get(timeout=0) == [1, "\0"]
            app.AsyncResult(id).forget()
            assert app.AsyncResult(id).state == states.PENDING
        group = GroupResult(str(uuid4()), [app.AsyncResult("one"), app.AsyncResult("two")], app=app)
        group.save()
        restored = GroupResult.restore(group.id, app=app)
        assert [result.id for result in restored] == ["one", "two"]
        group.delete()
        assert GroupResult.restore(group.id, app=app) is None


def check_a_part_counts_once(url: str) -> None:
    """However often a part is run, the callback is sent once, with the results in the order of the header."""
    with application(url) as app:
        chord = Chord(app, 3)
        for number in (2, 2, 0, 2):
            chord.succeed(number)
        assert chord.sent() == []
        chord.succeed(1)
        assert chord.sent() == [[0, 1, 2]]
        chord.succeed(1)
        chord.succeed(0)
        assert chord.sent() == [[0, 1, 2]]


def check_parts_that_end_at_once_send_one_callback(url: str) -> None:
    with application(url) as app:
        chord, together = Chord(app, 8), Barrier(8)

        def run(number: int) -> None:
            together.wait()
            chord.succeed(number, backend=app._get_backend())

        threads = [Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert chord.sent() == [[*range(8)]]


def check_a_part_that_was_killed_is_counted(url: str) -> None:
    """A chord is finished once, by another process, if its last part was killed after its result was kept.

    And so if it was killed later: after it has claimed the chord, or when it has made the callback.
    """
    with application(url) as app:
        for step in ("on_chord_part_return", "claim", "returned", "end"):
            chord = Chord(app, 2)
            chord.succeed(0)
            with pytest.MonkeyPatch.context() as patch:
                where = chord.backend if step == "on_chord_part_return" else chord.backend.store
                patch.setattr(where, step, _killed)
                patch.setattr("tablequeue.contrib.celery.backend.CLAIM", -10.0)  # as if its time were over
                with pytest.raises(Killed):
                    chord.succeed(1)
            assert chord.sent() == [], step
            chord.backend.store._next_look = 0.0
            chord.backend.finish_abandoned()
            assert chord.sent() == [[0, 1]], step


def check_a_chord_waits_for_the_database(url: str) -> None:
    """A chord ends as usual if the database is away for a moment. So does the look for complete chords."""
    with application(url) as app:
        for step in ("read", "returned"):
            chord = Chord(app, 2)
            chord.succeed(0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(chord.backend.store, step, _away_once(getattr(chord.backend.store, step)))
                chord.succeed(1)
            assert chord.sent() == [[0, 1]], step
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chord.backend.store, "abandoned", _away_once(chord.backend.store.abandoned))
            chord.backend.finish_abandoned()


def check_a_chord_that_fails_has_one_error(url: str) -> None:
    """When all parts have ended and one has failed, the callback has the error and is not sent."""
    with application(url) as app:
        chord = Chord(app, 2)
        for _ in range(2):
            chord.backend.mark_as_failure(chord.ids[0], ValueError("odd"), request=chord.request(0))
        assert app.AsyncResult(chord.callback.id).state == states.PENDING
        chord.succeed(1)
        assert chord.sent() == []
        with pytest.raises(ChordError, match="odd"):
            app.AsyncResult(chord.callback.id).get(timeout=0)


def check_a_chord_begins_again(url: str) -> None:
    """A chord that is applied again has none of its old parts; one that was added to waits for one more."""
    with application(url) as app:
        chord = Chord(app, 2)
        chord.succeed(0, 7)
        chord.backend.apply_chord((chord.id, []), chord.callback)
        chord.backend.add_to_chord(chord.id, None)
        chord.backend.set_chord_size(chord.id, 1)
        chord.succeed(0, 8)
        assert chord.sent() == []
        chord.succeed(1, 9)
        assert chord.sent() == [[8, 9]]


def check_results_expire(url: str) -> None:
    """What has expired is not read, and is deleted in parts; parts of a chord stay as long as one has not expired."""
    with application(url) as app, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "AT_ONCE", 2)
        backend: Any = app.backend
        chord = Chord(app, 3)
        chord.succeed(0)
        backend.expires = -1.0
        chord.succeed(1)
        for number in range(4):
            backend.store_result(f"old {number}", number, states.SUCCESS)
        assert app.AsyncResult("old 1").state == states.PENDING
        assert backend.store.expire()
        backend.cleanup()
        assert [*backend.store.read([backend.get_key_for_task(chord.ids[number]) for number in range(3)])] == [
            backend.get_key_for_task(chord.ids[0])
        ]
        backend.expires = 60.0
        chord.succeed(2)
        assert chord.sent() == [[0, 1, 2]]
        assert not backend.store.expire()


def check_get_ends_at_its_time(url: str) -> None:
    with application(url) as app:
        result = app.AsyncResult(str(uuid4()))
        with pytest.raises(TimeoutError):
            result.get(timeout=0)
        with pytest.raises(TimeoutError):
            result.get(timeout=0.01)
        app.backend.store_result(result.id, 1, states.SUCCESS)
        assert result.get(timeout=0) == 1


def check_other_results_end_no_wait(url: str) -> None:
    """What was stored, but is not waited for, ends no wait, also if it is of the same channel."""
    with application(url) as app:
        result, waits = app.AsyncResult("waited for"), app.backend.result_consumer._waiting
        numbers = [store.channel(app.backend.get_key_for_task(str(n))) for n in range(1000)]
        other = str(numbers.index(store.channel(app.backend.get_key_for_task(result.id))))
        looked, look = Event(), waits.look

        def noted() -> list[bytes]:
            found: list[bytes] = look()
            looked.set()
            return found

        def store_all() -> None:
            for id in (other, other, result.id):
                looked.clear()
                app.backend.store_result(id, 1, states.SUCCESS)
                looked.wait(PATIENCE)

        waits.look = noted
        app.backend.add_pending_result(result)
        thread = Thread(target=store_all)
        thread.start()
        app.backend.result_consumer.drain_events(PATIENCE)
        came = result._cache
        thread.join()
        assert came is not None


def check_get_is_woken(url: str) -> None:
    """Who waits for results looks once before they come, and then only at those that come: it does not poll."""
    with application(url) as app, application(url) as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "PAUSES_WITH_NOTIFIER", (60.0, 60.0))
        reads: list[int] = []
        looked = Event()
        backend: Any = app.backend
        read = backend.store.read

        def counted(keys: Any) -> Any:
            reads.append(len(keys))
            found = read(keys)
            looked.set()
            return found

        patch.setattr(backend.store, "read", counted)
        results = GroupResult(str(uuid4()), [app.AsyncResult(str(uuid4())) for _ in range(3)], app=app)

        def store_them() -> None:
            assert looked.wait(PATIENCE)
            for number, result in enumerate(results):
                other.backend.store_result(result.id, number, states.SUCCESS)

        storing = Thread(target=store_them)
        storing.start()
        try:
            assert results.get(timeout=PATIENCE) == [0, 1, 2]
        finally:
            storing.join()
        assert reads[0] == 3
        assert len(reads) <= 8


def check_threads_wait_together(url: str) -> None:
    """Several threads wait by one application, also for the same result."""
    with application(url) as app, application(url) as other:
        app.conf.result_backend_thread_safe = True
        ids = [str(uuid4()) for _ in range(3)]
        got: list[Any] = []
        threads = [
            Thread(target=lambda id=id: got.append(app.AsyncResult(id).get(timeout=PATIENCE))) for id in [*ids, ids[0]]
        ]
        for thread in threads:
            thread.start()
        for number, id in enumerate(ids):
            other.backend.store_result(id, number, states.SUCCESS)
        for thread in threads:
            thread.join()
        assert sorted(got) == [0, 0, 1, 2]


def _away_once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call, which fails at first as if the database were away."""
    errors = [Unreachable("The database cannot be reached.", "Try again.")]

    def called(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return call(*args, **options)

    return called


def _killed(*args: Any, **options: Any) -> Any:
    raise Killed


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]
