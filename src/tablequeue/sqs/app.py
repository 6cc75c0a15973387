"""The endpoint as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tablequeue.aio import THREADS as CONNECTIONS
from tablequeue.aio import AsyncDatabase
from tablequeue.aio.threads import Threads
from tablequeue.database import Database
from tablequeue.errors import BadDefinition, BadInput, QueueNotFound, TablequeueError
from tablequeue.observe.health import PATHS, Health
from tablequeue.observe.metrics import Metric
from tablequeue.sqs import moves, protocol, signatures
from tablequeue.sqs.endpoint import DEFAULT_ACCOUNT, DEFAULT_REGION, Call, Endpoint
from tablequeue.sqs.errors import PASSING, SqsError, no_queue
from tablequeue.sqs.operations import OPERATIONS
from tablequeue.sqs.pages import refuse_pages, refuse_pages_of_network
from tablequeue.sqs.protocol import Answer
from tablequeue.sqs.urls import ACCOUNT, Owner, region_in
from tablequeue.sqs.waiting import give_back

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

LARGEST_BODY = 8 << 20
"""Bytes of a request: ten messages of 1 MiB in all, with every character escaped."""
MOST_BYTES = 128 << 20
"""Bytes of all requests that come in at the same time; small ones do not count."""
SMALL = 256 << 10
BODY_WITHIN = 30.0
"""Seconds in which a client must have sent its request."""
METHODS = ("GET", "POST")
"""The methods that AWS accepts."""
# Clients get no details: the text of an error may contain the URL of the database.
BUSY = ("ServiceUnavailable", "The database is busy, or cannot be reached now. Try again.")
FAILED = ("InternalFailure", "The request failed for a reason that the log of the endpoint has.")
UNREAD = "tablequeue.unread"
"""An extension of ASGI: a server that has it calls a function if the client has not read the answer."""

log = logging.getLogger("tablequeue.sqs")


def app(
    db: Database | AsyncDatabase,
    *,
    credentials: Mapping[str, str] | None = None,
    account: str = DEFAULT_ACCOUNT,
    region: str = DEFAULT_REGION,
    any_key: bool = False,
    strict: bool = False,
    connections: int = CONNECTIONS,
) -> SqsApp:
    """Return an ASGI application that serves the queues of a database as Amazon SQS.

    credentials  secret keys by access key: requests must be signed with one of them. None: requests are not checked.
    account      the account in URLs and ARNs, 12 digits. Without `credentials`, an access key of 12 digits is the
                 account of its client instead.
    region       the region of requests that are not signed, if their host names no region.
    any_key      without `credentials`: answer requests for any name of a private network, and not only of this machine.
    strict       refuse to make a queue in the 60 seconds after its deletion at this process, as AWS does.
    connections  of a `Database`: the most connections that the endpoint uses at once, beside the one that listens.

    Raises `BadInput` for a wrong account, or for no connections.
    """
    if len(account) != 12 or not account.isdecimal():
        raise BadInput(f"account is {account!r}.", "Give 12 digits.")
    if connections < 1:
        raise BadInput(f"connections is {connections}.", "Give 1 or more.")
    opened = AsyncDatabase(db, Threads(connections), None) if isinstance(db, Database) else db
    return SqsApp(Endpoint(opened, account, region, strict), credentials, any_key=any_key)


class SqsApp:
    """The application. Made by `app`."""

    def __init__(self, endpoint: Endpoint, credentials: Mapping[str, str] | None, *, any_key: bool = False) -> None:
        self.endpoint = endpoint
        self._credentials = credentials
        self._any_key = any_key
        self._bodies = Bodies()
        self.answered: Counter[tuple[str, str]] = Counter()
        """How many requests were answered, by operation and by code: `OK`, or the error's code."""
        self.health = Health(endpoint.db.own.queues, stopping=lambda: self._stopped, metrics=self._metrics)
        self._stopped = False

    def stop(self) -> None:
        """Answer all waiting receives with no message, and let no receive wait from now on. Other requests go on."""
        self._stopped = True
        self.endpoint.housekeeping.stop()
        for hosted in self.endpoint.queues.all():
            hosted.waiters.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        self.stop()
        await moves.stop(self.endpoint)
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["method"] == "GET" and (path in PATHS or path == "/health"):
            # In a thread: it may wait for the database.
            health = await asyncio.to_thread(self.health.answer, path)
            status, type, words = health or (200, "text/plain; charset=utf-8", "ok\n")
            await _reply(send, Answer(status, type, words.encode()), "")
            return
        if scope["method"] not in METHODS:  # a browser lets any page send HEAD, and without an Origin
            await _reply(send, Answer(405, "text/plain", b"", ((b"allow", ", ".join(METHODS).encode()),)), "")
            return
        self.endpoint.housekeeping.begin()
        id, wire = str(uuid.uuid4()), protocol.wire(headers)
        name, code, size = "-", "OK", 0
        try:
            body = await self._bodies.read(headers, receive)
            size = len(body)
            if self._credentials is not None:
                signatures.verify(scope, headers, body, self._credentials)
            elif self._any_key:
                refuse_pages_of_network(scope["method"], headers)
            else:
                refuse_pages(headers)
            request = wire.read(path, scope["query_string"].decode("latin-1"), body)
            name = request.operation.name
            call = Call(self.endpoint, request.parameters, self._owner(scope, headers), _base(scope, headers))
            call.trace = headers.get("x-amzn-trace-id") or None
            call.in_xml = wire.in_xml
            if name == "ReceiveMessage":
                await self._received(wire, request, call, scope, receive, send, id)
                return
            answer = wire.result(request.operation, await self._result(request, call), id)
        except SqsError as error:
            answer, code = wire.error(error, id), error.code
        except _GoneError:
            return
        except Exception:
            log.exception("%s failed", name)
            failure = SqsError(*FAILED)
            answer, code = wire.error(failure, id), failure.code
        finally:
            self._bodies.release(size)
        self.answered[name, code] += 1
        await _reply(send, answer, id)

    async def _received(
        self,
        wire: protocol.Wire,
        request: protocol.Request,
        call: Call,
        scope: Scope,
        receive: Receive,
        send: Send,
        id: str,
    ) -> None:
        """Answer a receive. If the answer cannot be sent, the messages claimed for it are released.

        This covers a client that goes away before it has the answer, and a request that fails or is cancelled.
        """
        unread = scope.get("extensions", {}).get(UNREAD)
        try:
            # A receive that does not wait saves two tasks, and three steps of the event loop.
            watched = unread is None or await _waits(call)
            work = self._result(request, call)
            answer = wire.result(request.operation, await (_unless_gone(work, receive) if watched else work), id)
            self.answered[request.operation.name, "OK"] += 1
            await _reply(send, answer, id)
            if call.claimed and unread is not None:
                unread["call"](partial(give_back, (await call.queue()).queue, call.claimed))
        except BaseException:
            if call.claimed:
                give_back((await call.queue()).queue, call.claimed)
            raise

    async def _result(self, request: protocol.Request, call: Call) -> Mapping[str, Any]:
        try:
            try:
                return await OPERATIONS[request.operation.name](call)
            except QueueNotFound:  # another process dropped it, and may have made it again
                self.endpoint.queues.forget(call.owner.of(call.get("QueueUrl", ""))[1])
                return await OPERATIONS[request.operation.name](call)
        except QueueNotFound:
            raise no_queue() from None
        except TablequeueError as error:
            if isinstance(error, (BadInput, BadDefinition)):
                raise SqsError("UnsupportedOperation", str(error)) from None
            log.warning("%s: %s", request.operation.name, error)
            raise (SqsError(*BUSY) if isinstance(error, PASSING) else SqsError(*FAILED)) from None

    def _owner(self, scope: Scope, headers: Mapping[str, str]) -> Owner:
        """Return the account and the region of a client: from its credentials, or from the host that it called."""
        own = self.endpoint.owner
        key, region = signatures.claimed(headers, scope["query_string"].decode("latin-1"))
        if self._credentials is None and ACCOUNT.fullmatch(key):
            own = own._replace(account=key)
        return own._replace(region=region or region_in(headers.get("host", "")) or own.region)

    def _metrics(self) -> Iterable[Metric]:
        requests = Metric("tablequeue_sqs_requests_total", "Requests answered, by operation and code.", "counter")
        for (operation, code), number in sorted(self.answered.copy().items()):
            requests.add(number, operation=operation, code=code)
        waiting = Metric("tablequeue_sqs_waiting", "Receives that wait for messages.")
        waiting.add(sum(len(hosted.waiters) for hosted in self.endpoint.queues.all()))
        return requests, waiting


class _GoneError(Exception):
    """The client has closed the connection."""


class Bodies:
    """Reads the bodies of requests; large bodies share a limit, until their requests are answered."""

    def __init__(self) -> None:
        self._held = 0

    async def read(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Return the body of a request, to be released; `SqsError` if it is too large, too slow or over the limit."""
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) > LARGEST_BODY:
            raise _too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_WITHIN):
                while (message := await receive())["type"] == "http.request":
                    part = message.get("body", b"")
                    self._held += _counted(len(body) + len(part)) - _counted(len(body))
                    body += part
                    if len(body) > LARGEST_BODY:
                        raise _too_large()
                    if len(body) > SMALL and self._held > MOST_BYTES:
                        raise SqsError("ServiceUnavailable", "Too many large requests at the same time.")
                    if not message.get("more_body", False):
                        return bytes(body)
            raise _GoneError
        except TimeoutError:
            self.release(len(body))
            raise SqsError("RequestTimeout", f"The request took longer than {BODY_WITHIN:g} seconds.") from None
        except BaseException:
            self.release(len(body))
            raise

    def release(self, size: int) -> None:
        """A request with a body of this size is answered."""
        self._held -= _counted(size)


def _counted(size: int) -> int:
    return size if size > SMALL else 0


def _too_large() -> SqsError:
    return SqsError("RequestEntityTooLarge", f"The request is larger than {LARGEST_BODY} bytes.")


async def _waits(call: Call) -> bool:
    """Whether a receive may wait for messages."""
    try:
        return bool(call.get("WaitTimeSeconds", (await call.queue()).settings.wait))
    except (SqsError, TablequeueError):
        return False


async def _unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of the work; if the client goes away before, cancel the work and raise `_GoneError`."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise _GoneError
        return await working
    except BaseException:
        working.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await working
        raise
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Send, answer: Answer, id: str) -> None:
    headers = [
        (b"content-type", answer.type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    if id:
        headers.append((b"x-amzn-requestid", id.encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _base(scope: Scope, headers: Mapping[str, str]) -> str:
    """Return the URL of the endpoint, as the client reached it; a proxy may name its own scheme."""
    scheme = headers.get("x-forwarded-proto", scope.get("scheme", "http"))
    return f"{scheme}://{headers.get('host', 'localhost')}{scope.get('root_path', '')}"
