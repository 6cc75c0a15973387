"""OpenTelemetry spans and counters, by its conventions for messaging. Without its API this module does nothing.

The context of a push travels in the headers of its messages (`traceparent`), so the processing of a message belongs to
the same trace. A program with the API but without an SDK records nothing, and its headers do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tablequeue.observe.counters import COUNTED, counters

try:
    from opentelemetry import context as current
    from opentelemetry import metrics, propagate, trace
except ImportError:  # the extra `otel`
    INSTALLED = False
else:
    INSTALLED = True
    tracer = trace.get_tracer("tablequeue")

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

F = TypeVar("F", bound=Callable[..., Any])


# The counters for which OpenTelemetry has a name, with that name and the operation.
CONVENTIONS = {
    "pushed_messages": ("messaging.client.sent.messages", "push"),
    "popped_messages": ("messaging.client.consumed.messages", "pop"),
}


class Popped(Protocol):
    """A claim, synchronous or async."""

    @property
    def id(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...
    @property
    def attempt(self) -> int: ...


def recording() -> bool:
    """Whether the program has an SDK. Without one, spans record nothing, and take 45 of the 60 µs of a push."""
    return INSTALLED and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def pushing(operation: F) -> F:
    """Decorate a push, whose first argument is the queue context: each call has its own span."""
    if not INSTALLED:
        return operation

    @wraps(operation)
    def traced(context: Any, *args: Any) -> Any:
        if not recording():
            return operation(context, *args)
        queue = context.table.name
        with tracer.start_as_current_span(
            f"push {queue}", kind=trace.SpanKind.PRODUCER, attributes=_attributes(queue, "push", "send")
        ) as span:
            pushed = operation(context, *args)
            if isinstance(pushed, list):
                span.set_attribute("messaging.batch.message_count", len(pushed))
            elif pushed is not None:
                span.set_attribute("messaging.message.id", str(pushed))
            return pushed

    return traced  # type: ignore[return-value]


def carried(headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the headers of a message with the context of the current span. Existing headers are not replaced."""
    if not recording():
        return headers
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if not carrier or not (headers is None or isinstance(headers, Mapping)):
        return headers
    return carrier | dict(headers or {})


def processing(queue: str, messages: Sequence[Popped]) -> AbstractContextManager[None]:
    """Record the block as a span: a child of the push for one message, linked to all pushes for several."""
    return _processing(queue, messages) if recording() else nullcontext()


def observe(meter: Meter) -> None:
    """Let a meter read the counters of this process. It reads them when it exports, so a push costs nothing more."""
    for counted, description in COUNTED.items():
        name, operation = CONVENTIONS.get(counted, (f"tablequeue.{counted.replace('_', '.')}", None))
        meter.create_observable_counter(name, [_reader(counted, operation)], "{message}", description)


# -- private ---------------------------------------------------------------------------------------------------------


@contextmanager
def _processing(queue: str, messages: Sequence[Popped]) -> Iterator[None]:
    attributes = _attributes(queue, "process", "process")
    contexts = [propagate.extract(_texts(message.headers)) for message in messages]
    if len(messages) == 1:
        (message,) = messages
        attributes |= {"messaging.message.id": str(message.id), "tablequeue.message.attempts": message.attempt}
        parent, links = contexts[0], []
    else:
        attributes |= {"messaging.batch.message_count": len(messages)}
        parent = current.get_current()
        links = [trace.Link(trace.get_current_span(one).get_span_context()) for one in contexts]
    with tracer.start_as_current_span(
        f"process {queue}", parent, kind=trace.SpanKind.CONSUMER, attributes=attributes, links=links
    ):
        yield


def _reader(counted: str, operation: str | None) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def read(options: CallbackOptions) -> Iterator[Observation]:
        for (name, queue, outcome), number in counters.read().items():
            if name == counted:
                attributes = {"messaging.system": "tablequeue", "messaging.destination.name": queue}
                attributes |= {"messaging.operation.name": operation} if operation else {}
                attributes |= {"tablequeue.outcome": outcome} if outcome else {}
                yield metrics.Observation(number, attributes)

    return read


def _attributes(queue: str, name: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "tablequeue",
        "messaging.destination.name": queue,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that are text, as a context is. Other programs' headers may be any JSON."""
    return {name: value for name, value in headers.items() if isinstance(value, str)}


if INSTALLED:
    # Once for the process: until the program has an SDK, the meter of the API does nothing.
    observe(metrics.get_meter("tablequeue"))
