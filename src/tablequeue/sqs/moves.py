"""Message move tasks: the messages of a dead-letter queue go back, or to another queue, in the background.

A task is in a label of its queue, so every endpoint of the database lists it. It runs in the endpoint that started it;
if that ends, the task has failed, and messages not yet moved stay in the queue. A cancel writes another label, so the
task, which writes its progress meanwhile, cannot undo it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import uuid
from dataclasses import asdict, dataclass
from time import monotonic, time

from tablequeue.errors import TablequeueError
from tablequeue.model.message import Message
from tablequeue.model.pacing import backoff
from tablequeue.sqs.counting import COUNTS, counts
from tablequeue.sqs.endpoint import Call, Endpoint, Result
from tablequeue.sqs.errors import PASSING, SqsError, bad_parameter, check_range
from tablequeue.sqs.hosted import Hosted, label
from tablequeue.sqs.queues import sources
from tablequeue.sqs.urls import is_arn, of_arn

log = logging.getLogger("tablequeue.sqs")

MOST_LISTED = 10
KEPT = 10
"""The number of last tasks that a queue keeps."""
FASTEST = 500
STEP = 1000
"""Messages that are moved at once, if the rate allows it."""
STALE = 60
"""Seconds after which a running task that has written no progress has failed: its process has ended."""


@dataclass(slots=True)
class Task:
    """One task. Times are in milliseconds; `noted` is when the label was written."""

    id: str
    status: str
    source: str
    destination: str | None
    rate: int | None
    to_move: int
    started: int
    moved: int = 0
    failure: str | None = None
    noted: int = 0

    @property
    def handle(self) -> str:
        return base64.b64encode(json.dumps({"taskId": self.id, "sourceArn": self.source}).encode()).decode()

    @property
    def is_active(self) -> bool:
        return self.status == "RUNNING"

    def entry(self) -> Result:
        """Return its entry in ListMessageMoveTasks."""
        found: Result = {
            "TaskHandle": self.handle if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source,
            "DestinationArn": self.destination,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": self.started,
        }
        return {name: value for name, value in found.items() if value is not None}


async def start_message_move_task(call: Call) -> Result:
    source_arn, destination_arn = call.parameters["SourceArn"], call.get("DestinationArn")
    rate = call.get("MaxNumberOfMessagesPerSecond")
    source = await _resource(call, source_arn, "SourceArn")
    destination = None if destination_arn is None else await _resource(call, destination_arn, "DestinationArn")
    check_range(rate, "MaxNumberOfMessagesPerSecond", 1, FASTEST, f"Must be between 1 and {FASTEST}.")
    if not await sources(call, source):
        raise bad_parameter("Source queue must be configured as a Dead Letter Queue.")
    if destination is not None and destination.queue.name == source.queue.name:
        raise bad_parameter("Source and destination queues must not be the same.")
    if destination is not None and destination.settings.fifo is not source.settings.fifo:
        raise bad_parameter("Source and destination queues must be of the same type.")
    if any(task.is_active for task in _tasks_of(source)):
        raise bad_parameter(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    visible = (await counts(source.queue))[COUNTS[0]]
    task = Task(
        str(uuid.uuid4()),
        "RUNNING",
        source_arn,
        destination_arn,
        rate,
        int(visible),
        round(time() * 1000),
    )
    await _note(source, task)
    runner = asyncio.create_task(_run(call.endpoint, source, destination, task))
    call.endpoint.moves.add(runner)
    runner.add_done_callback(call.endpoint.moves.discard)
    return {"TaskHandle": task.handle}


async def list_message_move_tasks(call: Call) -> Result:
    most = call.get("MaxResults", 1)
    check_range(most, "MaxResults", 1, MOST_LISTED, f"Must be between 1 and {MOST_LISTED}.")
    source = await _resource(call, call.parameters["SourceArn"], "SourceArn")
    return {"Results": [task.entry() for task in _tasks_of(source)[:most]]}


async def cancel_message_move_task(call: Call) -> Result:
    text = call.parameters["TaskHandle"]
    try:
        values = json.loads(base64.b64decode(text, validate=True))
        id, arn = str(values["taskId"]), str(values["sourceArn"])
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        raise bad_parameter("Value for parameter TaskHandle is invalid.") from None
    source = await _resource(call, arn, "SourceArn")
    task = next((each for each in _tasks_of(source) if each.id == id), None)
    if task is None:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    if not task.is_active:
        raise SqsError("UnsupportedOperation", "Only active tasks can be cancelled.")
    await source.queue.alter(labels={label("cancelled_move"): task.id})
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def stop(endpoint: Endpoint) -> None:
    """End the tasks of an endpoint; each has failed then."""
    for runner in endpoint.moves:
        runner.cancel()
    await asyncio.gather(*endpoint.moves, return_exceptions=True)


# -- private ---------------------------------------------------------------------------------------------------------


async def _resource(call: Call, arn: str, parameter: str) -> Hosted:
    if not is_arn(arn):
        raise bad_parameter(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    try:
        return await call.endpoint.queues.open(*of_arn(arn), fresh=True)
    except SqsError:
        words = f"The resource that you specified for the {parameter} parameter doesn't exist."
        raise SqsError("ResourceNotFoundException", words) from None


def _tasks_of(source: Hosted) -> list[Task]:
    """Return the last tasks of a queue, the newest first."""
    tasks = [Task(**values) for values in json.loads(source.settings.labels.get(label("moves"), "[]"))]
    for task in tasks:
        if task.status in ("RUNNING", "CANCELLING") and time() * 1000 - task.noted > STALE * 1000:
            task.status, task.failure = "FAILED", "The endpoint that moved the messages has ended."
        elif task.is_active and task.id == source.settings.labels.get(label("cancelled_move")):
            task.status = "CANCELLING"
    return tasks


async def _note(source: Hosted, task: Task) -> None:
    """Write a task into the label: instead of its last entry, or as the newest."""
    task.noted = round(time() * 1000)
    others = [each for each in _tasks_of(source) if each.id != task.id]
    tasks = [task, *others][:KEPT]
    await source.queue.alter(labels={label("moves"): json.dumps([asdict(task) for task in tasks])})


async def _run(endpoint: Endpoint, source: Hosted, destination: Hosted | None, task: Task) -> None:
    failures = 0
    try:
        while task.is_active:
            try:
                await _advance(endpoint, source, destination, task)
                failures = 0
            except PASSING as error:  # messages moved by a call with a lost answer are not counted
                failures += 1
                log.warning("%s: %s", source.name, error)
                await asyncio.sleep(backoff(failures))
    except asyncio.CancelledError:
        task.status, task.failure = "FAILED", "The endpoint that moved the messages has ended."
    except SqsError as error:
        task.status, task.failure = "FAILED", error.code
    except TablequeueError as error:
        task.status, task.failure = "FAILED", error.cause
    await _tell(endpoint, source, task)


async def _advance(endpoint: Endpoint, source: Hosted, destination: Hosted | None, task: Task) -> None:
    """Move some messages, and write the progress; or end the task."""
    if await _is_cancelled(endpoint, source, task):
        task.status = "CANCELLED"
        return
    begun = monotonic()
    moved = await _step(endpoint, source, destination, min(STEP, task.rate or STEP))
    task.moved += moved
    if not moved:
        task.status = "COMPLETED"
    elif task.rate is not None:
        await _tell(endpoint, source, task)
        await asyncio.sleep(max(0.0, moved / task.rate - (monotonic() - begun)))


async def _step(endpoint: Endpoint, source: Hosted, destination: Hosted | None, number: int) -> int:
    """Move up to so many messages, the oldest first, and return how many."""
    messages = await _waiting(source, number)
    ids = [message.id for message in messages]
    if not ids:
        return 0
    if destination is not None:
        to = await endpoint.queues.open(destination.owner, destination.name, fresh=True)
        moved = len(await source.queue.move(ids, to=to.queue))
    else:
        if not any(source.origin_of(message.headers) for message in messages):
            raise SqsError("CouldNotDetermineMessageSource", "")
        moved = await source.queue.redrive(ids)
    for hosted in endpoint.queues.all():
        hosted.waiters.wake()
    return moved


async def _waiting(source: Hosted, number: int) -> list[Message]:
    """Return messages that no receive holds, also messages with an ended visibility timeout."""
    messages = await source.queue.peek(number)
    if not messages:
        # A claim that finds too few messages makes them ready.
        await source.queue.release_many(await source.queue.pop_many(1))
        messages = await source.queue.peek(number)
    if source.settings.fifo and len(messages) < number:
        messages += await source.queue.peek(number - len(messages), state="blocked")
    return messages


async def _is_cancelled(endpoint: Endpoint, source: Hosted, task: Task) -> bool:
    """Write the progress; return whether a client cancelled the task."""
    there = await endpoint.queues.open(source.owner, source.name, fresh=True)
    await _note(there, task)
    return there.settings.labels.get(label("cancelled_move")) == task.id


async def _tell(endpoint: Endpoint, source: Hosted, task: Task) -> None:
    """Write the progress, if the queue still exists."""
    try:
        await _note(await endpoint.queues.open(source.owner, source.name, fresh=True), task)
    except (SqsError, TablequeueError):
        return  # the queue or the database is gone: no client can ask for the task
