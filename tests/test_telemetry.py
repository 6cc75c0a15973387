"""OpenTelemetry spans: their content, and how the context of a push reaches the consumer of the message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tablequeue import Database, NewMessage, Queue, aio
from tablequeue.errors import BadPayload
from tablequeue.observe import telemetry
from tablequeue.observe.counters import counters
from tablequeue.worker import Worker
from tests.servers import Place, only
from tests.support import claimed

Spans = InMemorySpanExporter

pytestmark = only("sqlite")  # spans are the same on every engine


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """The recorded spans. The provider is not installed for the whole process, because that cannot be undone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(telemetry, "tracer", provider.get_tracer("tests"))
    return exporter


def of(spans: Spans, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


def context(span: ReadableSpan) -> trace.SpanContext:
    assert span.context is not None
    return span.context


def test_a_message_is_pushed_and_processed_in_one_trace(queue: Queue, spans: Spans) -> None:
    id = queue.push({"n": 1})
    with queue.receive() as message:
        assert message.headers.keys() == {"traceparent"}
    push, process = of(spans, "push work"), of(spans, "process work")
    assert process.parent is not None
    assert (process.parent.trace_id, process.parent.span_id) == (context(push).trace_id, context(push).span_id)
    assert (push.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(push.attributes or {}) == {
        "messaging.system": "tablequeue",
        "messaging.destination.name": "work",
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.message.id": str(id),
    }
    assert dict(process.attributes or {}) == {
        "messaging.system": "tablequeue",
        "messaging.destination.name": "work",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(id),
        "tablequeue.message.attempts": 1,
    }


def test_a_failure_is_in_the_span(queue: Queue, spans: Spans) -> None:
    queue.push("x")
    with pytest.raises(ZeroDivisionError), queue.receive():
        _ = 1 / 0
    span = of(spans, "process work")
    assert span.status.status_code == StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    with pytest.raises(BadPayload):
        queue.push(object())
    (failed,) = [span for span in spans.get_finished_spans() if span.status.status_code == StatusCode.ERROR][1:]
    assert failed.name == "push work"


def test_a_batch_has_one_span_and_every_message_its_context(queue: Queue, spans: Spans) -> None:
    queue.push_many(["a", NewMessage("b", headers={"mine": 1}), NewMessage("c", headers={"traceparent": "mine"})])
    push = of(spans, "push work")
    assert (push.attributes or {})["messaging.batch.message_count"] == 3
    mine, theirs, own = (claim.headers for claim in queue.pop_many(3))
    assert f"{context(push).trace_id:032x}" in mine["traceparent"]
    assert theirs == {**mine, "mine": 1}
    assert own == {"traceparent": "mine"}, "a header of the caller's is left alone"


def test_several_are_linked_to_their_pushes(queue: Queue, spans: Spans) -> None:
    for number in range(2):
        queue.push(number)
    claims = queue.pop_many(2)
    with telemetry.processing("work", claims):
        pass
    pushes = [span for span in spans.get_finished_spans() if span.name == "push work"]
    process = of(spans, "process work")
    assert [link.context.span_id for link in process.links] == [context(push).span_id for push in pushes]
    assert (process.attributes or {})["messaging.batch.message_count"] == 2


def test_the_callback_of_a_batch_is_processed_in_the_trace_of_who_opened_it(db: Database, spans: Spans) -> None:
    called, queue = db.create_queue("called"), db.create_queue("work", batches=True)
    with telemetry.tracer.start_as_current_span("request"), queue.batch(then=("called", "ended")) as batch:
        batch.push("a")
    for consumer in (queue, called):
        with consumer.receive():
            pass
    request = of(spans, "request")
    for name in ("process work", "process called"):
        parent = of(spans, name).parent
        assert parent is not None
        assert (parent.trace_id, parent.span_id) == (context(request).trace_id, context(request).span_id)


def test_the_worker_processes_in_the_trace_of_the_push(queue: Queue, db: Database, spans: Spans) -> None:
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    async def handle_async(message: Any) -> None:
        handle(message)

    for handler in (handle, handle_async):
        spans.clear()
        queue.push("x")
        worker = Worker()
        worker.handler("work")(handler)
        worker.run(db, drain=True)
        assert seen[-1] == context(of(spans, "push work")).trace_id
        assert of(spans, "process work").kind == SpanKind.CONSUMER


def test_async_verbs_have_the_same_spans(queue: Queue, place: Place, spans: Spans) -> None:
    async def main() -> None:
        async with await aio.connect(place.url) as database:
            there = await database.queue("work")
            await there.push("x")
            async with there.receive():
                pass

    asyncio.run(main())
    push, process = of(spans, "push work"), of(spans, "process work")
    assert context(push).trace_id == context(process).trace_id


@pytest.mark.parametrize("headers", [{"traceparent": 5}, {"traceparent": "x"}, {"tracestate": ["a"]}, {"a": {"b": 1}}])
def test_foreign_headers_are_no_context(queue: Queue, spans: Spans, headers: dict[str, Any]) -> None:
    queue.push("x", headers=headers)
    with queue.receive() as message:
        assert message.headers.items() >= headers.items()
    assert of(spans, "process work")


def test_an_api_without_an_sdk_changes_nothing(queue: Queue) -> None:
    queue.push("x")
    queue.push("y", headers={"a": 1})
    assert [claim.headers for claim in queue.pop_many(2)] == [{}, {"a": 1}]
    with telemetry.processing("work", [claimed_after(queue)]):
        pass


def claimed_after(queue: Queue) -> Any:
    queue.push("z")
    return claimed(queue)


def test_without_the_api_there_is_nothing(queue: Queue, place: Place) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import tablequeue\n"
        "from tablequeue.observe import telemetry\n"
        "assert not telemetry.INSTALLED\n"
        "queue = tablequeue.connect(sys.argv[1]).queue('work')\n"
        "queue.push('x')\n"
        "with queue.receive() as message: assert message.headers == {}\n"
    )
    words: Sequence[str] = [sys.executable, "-c", program, place.url]
    subprocess.run(words, check=True, timeout=120)
    assert queue.stats().finished == 1


def test_a_meter_reads_the_counters(queue: Queue) -> None:
    reader = InMemoryMetricReader()
    telemetry.observe(MeterProvider([reader]).get_meter("tests"))
    before = counters.read()
    queue.push_many([*"ab"])
    claimed(queue).fail("no", retry=False)
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        (metric.name, *sorted((point.attributes or {}).items())): point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and (point.attributes or {})["messaging.destination.name"] == "work"
    }
    own = (("messaging.destination.name", "work"),)
    system = (("messaging.system", "tablequeue"),)

    def rose(name: str, *labels: tuple[str, str], counted: tuple[str, str, str]) -> float:
        return points[(name, *own, *labels)] - before.get(counted, 0)

    sent, popped = (("messaging.operation.name", verb) for verb in ("push", "pop"))
    pushes, pops = ("pushed_messages", "work", ""), ("popped_messages", "work", "")
    dead = ("failed_messages", "work", "dead")
    assert rose("messaging.client.sent.messages", sent, *system, counted=pushes) == 2
    assert rose("messaging.client.consumed.messages", popped, *system, counted=pops) == 1
    assert rose("tablequeue.failed.messages", *system, ("tablequeue.outcome", "dead"), counted=dead) == 1
