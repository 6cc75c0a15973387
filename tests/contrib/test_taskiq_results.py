"""The result backend for taskiq, with tasks that a receiver of taskiq runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from taskiq import TaskiqDepends, TaskiqResult
from taskiq.depends.progress_tracker import ProgressTracker, TaskProgress, TaskState
from taskiq.exceptions import ResultGetError, ResultSetError
from taskiq.receiver import Receiver

from tablequeue.contrib.taskiq import Broker, ResultBackend, results
from tablequeue.errors import BadInput
from tests.contrib.urls import url_of
from tests.servers import Place, only

EACH = only("sqlite", "postgresql", "mariadb", "mssql")


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    with url_of(place) as own:
        yield own


@asynccontextmanager
async def backend(url: str, **options: Any) -> AsyncIterator[ResultBackend]:
    made = ResultBackend(url, **options)
    await made.startup()
    try:
        yield made
    finally:
        await made.shutdown()


def result(value: Any, **more: Any) -> TaskiqResult[Any]:
    return TaskiqResult(is_err=False, return_value=value, execution_time=0.5, **more)


@EACH
def test_tasks_with_results_and_progress(url: str) -> None:
    async def main() -> None:
        broker = Broker(url).with_result_backend(ResultBackend(url))
        await broker.startup()

        @broker.task
        async def count(n: int, tracker: Annotated[ProgressTracker[Any], TaskiqDepends()]) -> dict[str, Any]:
            await tracker.set_progress(TaskState.STARTED, {"row": n})
            return {"n": n, "at": datetime(2026, 11, 27, tzinfo=UTC)}

        @broker.task
        async def fail() -> None:
            raise ValueError("odd")

        finish = asyncio.Event()
        listening = asyncio.create_task(Receiver(broker, run_startup=False).listen(finish))
        good, bad = await count.kiq(3), await fail.kiq()
        found = await good.wait_result(check_interval=0.01, timeout=60)
        assert (found.is_err, found.return_value) == (False, {"n": 3, "at": "2026-11-27T00:00:00Z"})
        assert await good.get_progress() == TaskProgress(state="STARTED", meta={"row": 3})
        with pytest.raises(ValueError, match="odd"):
            (await bad.wait_result(check_interval=0.01, timeout=60)).raise_for_error()
        finish.set()
        await listening
        await broker.shutdown()

    asyncio.run(main())


@EACH
def test_the_result_of_a_success_stays(url: str) -> None:
    async def main() -> None:
        async with backend(url) as one, backend(url) as other:
            assert not await one.is_result_ready("ä b")
            with pytest.raises(ResultGetError):
                await one.get_result("ä b")
            await one.set_result("ä b", TaskiqResult(is_err=True, return_value=None, execution_time=0))
            await one.set_result("ä b", result("first", log="lines"))
            await one.set_result("ä b", result("second"))
            found = await other.get_result("ä b", with_logs=True)
            assert (found.return_value, found.log) == ("first", "lines")
            assert (await other.get_result("ä b")).log is None
        async with backend(url, expires=0.001) as short:
            await short.set_result("soon", result(1))
            while await short.is_result_ready("soon"):
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_what_is_no_json_is_an_error_that_says_so(tmp_path: Any) -> None:
    async def main() -> None:
        async with backend(f"sqlite:///{tmp_path}/work.db") as one:
            await one.set_result("a", result(object()))
            found = await one.get_result("a")
            assert found.is_err
            assert "cannot be kept as JSON" in str(found.error)
            with pytest.raises(ResultSetError):
                await one.set_progress("a", TaskProgress(state="S", meta=object()))

    asyncio.run(main())


@only("mariadb")
def test_what_is_too_large_is_an_error_that_says_so(url: str) -> None:
    async def main() -> None:
        async with backend(url) as one:
            await one.set_result("a", result("x" * 2**24))
            found = await one.get_result("a")
            assert found.is_err
            assert "max_allowed_packet" in str(found.error)

    asyncio.run(main())


def test_progress_is_written_once_a_second_and_when_the_state_changes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = [100.0]
    monkeypatch.setattr(results, "monotonic", lambda: time[0])

    async def main() -> None:
        async with backend(f"sqlite:///{tmp_path}/work.db") as one:
            seen = []
            for state, meta, later in (("A", 1, 0.0), ("A", 2, 0.9), ("B", 3, 0.0), ("B", 4, 1.0)):
                time[0] += later
                await one.set_progress("a", TaskProgress(state=state, meta=meta))
                found = await one.get_progress("a")
                assert found is not None
                seen.append(found.meta)
            assert seen == [1, 1, 3, 4]
            await one.set_result("a", result(1))
            assert one._reported == {}, "of no task that has ended"
            assert await one.get_progress("b") is None

    asyncio.run(main())


def test_a_backend_that_was_not_started_says_so() -> None:
    with pytest.raises(BadInput, match="has not been started"):
        asyncio.run(ResultBackend("sqlite:///nowhere.db").get_result("a"))
