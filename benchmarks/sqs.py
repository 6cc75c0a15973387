"""The SQS endpoint: sixteen clients, a long FIFO backlog, and many long polls.

    python -m benchmarks.sqs [--engines sqlite,postgresql] [--repeats 5] [--full]

Sixteen processes of boto3 on loopback send ten messages per request, and then receive and delete ten per request.
Beside them: the same clients against moto's server, which keeps messages in memory, and the verbs of Python one by one
in one process. The environment variable TABLEQUEUE_BENCH_MOTO names a virtual environment with `moto[server,sqs]`. One
client drains two FIFO queues in turns: with a long and a short backlog, and with one group and many. The processor time
of the endpoint comes from /proc, so these parts need Linux: with long polls, of one client with one message per
request, and of all clients with one message per request at one process and at two.

Where the clients and the database need the same cores, the rate at two processes is that of the cores. So what two
processes do is counted per processor time of the endpoint: it is twice what one does, less what a request costs more.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue import Queue
from tablequeue.model.message import NewMessage

CLIENTS, BATCH = 16, 10
# Messages in a round; those that are waiting in the long FIFO backlog, and those that are drained in a round.
MESSAGES, FULL = 320, 16_000
LONG, LONG_FULL, SHORT, DRAINED, DRAINED_FULL = 5_000, 200_000, 1_000, 100, 500
GROUPS = 1_000
# Messages that wait in one group, and in many; single messages whose processor time is counted.
IN_ONE, SINGLE, SINGLE_FULL = 20_000, 300, 3_000
# Long polls, and seconds in which the processor time is counted.
POLLS, SECONDS, SECONDS_FULL = 500, 3, 15
MOTO = "TABLEQUEUE_BENCH_MOTO"
# The aims: over moto's server, over the verbs of Python, of the long backlog over the short one, of one group over
# many, % of a core, milliseconds of a core for a request, and of two processes over one.
OVER_MOTO, OVER_PYTHON, OVER_SHORT, OVER_MANY, CORE, REQUEST, OVER_ONE = 3, 0.5, 0.9, 0.7, 5, 0.4, 1.7
CONDITIONS = (
    f"{CLIENTS} processes of boto3 on loopback, {BATCH} messages of 100 bytes per request. Every commit of tablequeue "
    "is flushed; moto's server keeps everything in memory, and delivers some messages twice."
)
BODY = "x" * 93
SEND, DRAIN = f"send, {CLIENTS} clients", f"receive + delete, {CLIENTS} clients"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["boto3", "tablequeue"])  # imported once


@cache
def client(url: str) -> Any:
    return boto3.client(
        "sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any"
    )


def connect(urls: list[str]) -> None:
    """Make the clients of a process before the first round."""
    for url in urls:
        client(url).list_queues()


def send(url: str, queue: str, start: int, messages: int) -> None:
    for first in range(start, start + messages, BATCH):
        entries = [{"Id": str(n), "MessageBody": f"{BODY}{n:07}"} for n in range(first, first + BATCH)]
        client(url).send_message_batch(QueueUrl=queue, Entries=entries)


def drain(url: str, queue: str, most: int) -> list[str]:
    """Receive and delete messages until there are none, or `most` of them; return their bodies."""
    bodies: list[str] = []
    while len(bodies) < most:
        found = client(url).receive_message(QueueUrl=queue, MaxNumberOfMessages=BATCH).get("Messages", [])
        if not found:
            break
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(found)]
        client(url).delete_message_batch(QueueUrl=queue, Entries=entries)
        bodies += [each["Body"] for each in found]
    return bodies


def one_by_one(url: str, queue: str, messages: int) -> None:
    """Send, receive and delete so many messages, with a request each."""
    sqs = client(url)
    for n in range(messages):
        sqs.send_message(QueueUrl=queue, MessageBody=f"{BODY}{n:07}")
        for message in sqs.receive_message(QueueUrl=queue).get("Messages", []):
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def endpoint(url: str, processes: int = 1) -> Iterator[tuple[str, int]]:
    """Yield the URL and the process id of an endpoint for a database; of several processes that of their parent."""
    command = [sys.executable, "-m", "tablequeue", "--url", url, "sqs", "--json", "--port", "0"]
    command += ["--processes", str(processes)]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process.pid


@contextmanager
def moto(environment: str) -> Iterator[str]:
    """Yield the URL of moto's server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running([str(Path(environment, "bin", "moto_server")), "-p", str(port)], **quiet):
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"


def clients(engine: str, ours: str, other: str | None, queue: Queue, messages: int, repeats: int) -> Iterator[Figure]:
    """Measure sixteen clients, against this endpoint and moto's server, and the verbs of Python."""
    urls = {OURS: ours} | ({} if other is None else {"moto's server": other})
    share = messages // CLIENTS
    names = count()
    with _processes.Pool(CLIENTS, connect, ([*urls.values()],)) as pool:

        def by_clients(url: str) -> tuple[float, float]:
            made = client(url).create_queue(QueueName=f"round-{next(names)}")["QueueUrl"]
            shares = [(url, made, n * share, share) for n in range(CLIENTS)]
            sent = rate(lambda: pool.starmap(send, shares, 1), messages)
            bodies: list[str] = []

            def drained() -> None:
                for some in pool.starmap(drain, [(url, made, messages)] * CLIENTS, 1):
                    bodies.extend(some)

            received = rate(drained, messages)
            client(url).delete_queue(QueueUrl=made)
            if {*bodies} != {f"{BODY}{n:07}" for n in range(messages)}:
                raise SystemExit(f"{url} lost messages.")
            if url == ours and len(bodies) > messages:
                raise SystemExit("A message arrived twice.")
            return sent, received

        def by_verbs() -> tuple[float, float]:
            bodies = [f"{BODY}{n:07}" for n in range(messages)]

            def drained() -> None:
                while claim := queue.pop():
                    claim.complete()

            return rate(lambda: [queue.push(body) for body in bodies], messages), rate(drained, messages)

        works: dict[str, Callable[[], tuple[float, float]]] = {
            name: lambda url=url: by_clients(url)  # type: ignore[misc]
            for name, url in urls.items()
        }
        found = interleaved(works | {"verbs of Python, one by one": by_verbs}, repeats, f"{engine}: clients")
    aims = {"moto's server": OVER_MOTO, "verbs of Python, one by one": OVER_PYTHON}
    for step, what in enumerate((SEND, DRAIN)):
        for name, rounds in found.items():
            rates = [each[step] for each in rounds]
            yield Figure(LABELS[engine], what, name, "messages/s", rates, aims.get(name))


class Backlog(NamedTuple):
    """What waits in a FIFO queue."""

    name: str
    messages: int
    groups: int


def backlogs(
    engine: str, ours: str, db: tablequeue.Database, first: Backlog, second: Backlog, drained: int, repeats: int
) -> list[float]:
    """Return how fast one client drains a FIFO queue, over another one, for each round."""
    numbers = count()
    queues = {}

    def fill(queue: Queue, groups: int, messages: int) -> None:
        new = ((next(numbers), n % groups) for n in range(messages))
        queue.push_many([NewMessage(BODY, group=str(group), key=str(number)) for number, group in new])

    for name, waiting, groups in (first, second):
        set = {"FifoQueue": "true", "VisibilityTimeout": "3600"}
        url = client(ours).create_queue(QueueName=f"{name}.fifo", Attributes=set)["QueueUrl"]
        queue = db.queue(f"{name}.fifo")
        for start in range(0, waiting, 10_000):
            fill(queue, groups, min(10_000, waiting - start))
        queues[name] = queue, groups, url

    def work(queue: Queue, groups: int, url: str) -> float:
        found = rate(lambda: drain(ours, url, drained), drained)
        fill(queue, groups, drained)
        return found

    works = {name: lambda made=made: work(*made) for name, made in queues.items()}
    rates = interleaved(works, repeats, f"{engine}: FIFO backlogs")
    return [one / other for one, other in zip(rates[first.name], rates[second.name], strict=True)]


def fifo(engine: str, ours: str, db: tablequeue.Database, long: int, drained: int, repeats: int) -> Iterator[Figure]:
    """Measure FIFO queues: a long backlog over a short one, and one group over many.

    Groups of the long and the short one have as many messages, because a receive takes several of a group at once.
    """
    both = Backlog("long", long, GROUPS), Backlog("short", SHORT, GROUPS * SHORT // long)
    what = f"receive + delete of {long:,} waiting in {GROUPS:,} groups / of {SHORT:,}"
    yield Figure(LABELS[engine], what, OURS, "ratio", backlogs(engine, ours, db, *both, drained, repeats), OVER_SHORT)
    both = Backlog("one", IN_ONE, 1), Backlog("many", IN_ONE, GROUPS)
    what = f"receive + delete of {IN_ONE:,} waiting in one group / in {GROUPS:,}"
    yield Figure(LABELS[engine], what, OURS, "ratio", backlogs(engine, ours, db, *both, drained, repeats), OVER_MANY)


def single(engine: str, ours: str, pid: int, messages: int, repeats: int) -> Figure:
    """Measure the processor time of the endpoint for a request about one message."""
    queue = client(ours).create_queue(QueueName="single")["QueueUrl"]
    times = []
    for _ in range(repeats):
        before = _processor_time(pid)
        one_by_one(ours, queue, messages)
        times.append(1000 * (_processor_time(pid) - before) / (3 * messages))
    return Figure(LABELS[engine], "processor time of a request, one message each", OURS, "ms", times, REQUEST)


def processes(engine: str, url: str, messages: int, repeats: int) -> Figure:
    """Measure what two processes do per processor time of theirs, over what one does."""
    with endpoint(url) as one, endpoint(url, 2) as two, _processes.Pool(CLIENTS) as pool:

        def used(ours: str, pid: int) -> float:
            pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
            queue = client(ours).create_queue(QueueName="single")["QueueUrl"]
            pool.starmap(connect, [([ours],)] * CLIENTS, 1)
            before = sum(map(_processor_time, pids))
            pool.starmap(one_by_one, [(ours, queue, messages // CLIENTS)] * CLIENTS, 1)
            return sum(map(_processor_time, pids)) - before

        works = {"one": lambda: used(*one), "two": lambda: used(*two)}
        found = interleaved(works, repeats, f"{engine}: processes")
    ratios = [2 * once / twice for once, twice in zip(found["one"], found["two"], strict=True)]
    return Figure(LABELS[engine], "two processes / one, per processor time", OURS, "ratio", ratios, OVER_ONE)


async def polled(ours: str, pid: int, seconds: float) -> float:
    """Return the processor time of an endpoint with many long polls, in % of a core."""
    queue = client(ours).create_queue(QueueName="polled")["QueueUrl"]
    body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20})
    request = (
        f"POST / HTTP/1.1\r\nHost: {urlsplit(ours).netloc}\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    parts = urlsplit(ours)
    writers = []
    for _ in range(POLLS):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request.encode())
        writers.append(writer)
    await asyncio.sleep(2)  # until all of them wait
    before = _processor_time(pid)
    await asyncio.sleep(seconds)
    used = _processor_time(pid) - before
    for writer in writers:
        writer.close()
    return 100 * used / seconds


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    arguments = chosen(parser(__doc__, list(PLACES)))
    full = arguments.full
    environment = os.environ.get(MOTO)
    if environment is None:
        print(f"Without moto's server: {MOTO} does not name an environment that has it.")
    figures: list[Figure] = []
    for engine in arguments.engines:
        with ExitStack() as stack:
            url = stack.enter_context(PLACES[engine]())
            db = stack.enter_context(tablequeue.connect(url))
            ours, pid = stack.enter_context(endpoint(url))
            other = None if environment is None else stack.enter_context(moto(environment))
            queue = db.create_queue("verbs", payload="text", history="none")
            figures += clients(engine, ours, other, queue, FULL if full else MESSAGES, arguments.repeats)
            sizes = (LONG_FULL, DRAINED_FULL) if full else (LONG, DRAINED)
            figures += fifo(engine, ours, db, *sizes, arguments.repeats)
            figures.append(single(engine, ours, pid, SINGLE_FULL if full else SINGLE, arguments.repeats))
            figures.append(processes(engine, url, SINGLE_FULL if full else SINGLE, arguments.repeats))
            used = asyncio.run(polled(ours, pid, SECONDS_FULL if full else SECONDS))
            figures.append(Figure(LABELS[engine], f"{POLLS} long polls", OURS, "% of a core", [used], CORE))
    save("sqs", "The SQS endpoint", CONDITIONS, figures, keep=full)


if __name__ == "__main__":
    main()
