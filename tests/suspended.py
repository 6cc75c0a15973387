"""Clients that are suspended or cut off in the middle of a call, and what others do meanwhile.

A `Relay` is between a client and its server. From one request on it takes no byte of an answer from the server, as a
client that is suspended takes none. Answers that are larger than the buffers of the sockets stay in the server then,
in the middle of the statement.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tablequeue import Claim, Database, NewMessage, Queue, Rate
from tablequeue.ext import context_of
from tablequeue.topic import Topic
from tablequeue.verbs import catalogue, topics
from tablequeue.verbs.context import Context
from tests.servers import Kind, Place

# Together more than the buffers of a socket hold: 4 MB in Linux, and what the relay has.
MESSAGES, LARGE = 6, "x" * 1_000_000
SMALL = "x"


# -- the relay -----------------------------------------------------------------------------------------------------


class Relay:
    """Connections to a server. After so many more answers it reads no others until it is released."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Condition()
        self._left: int | None = None
        self._asked: set[socket.socket] = set()
        self._upstream: list[socket.socket] = []
        self._clients: list[socket.socket] = []
        self.stopped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    @property
    def ports(self) -> list[int]:
        """The ports from which it is connected to the server."""
        return [upstream.getsockname()[1] for upstream in self._upstream if upstream.fileno() >= 0]

    def stop_after(self, answers: int) -> None:
        with self._lock:
            self._left = answers

    def release(self) -> None:
        with self._lock:
            self._left = None
            self.stopped.clear()
            for upstream in self._upstream:
                with suppress(OSError):
                    # Or the rest of an answer comes in thousands of small pieces.
                    upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, 1 << 16)
            self._lock.notify_all()

    def await_the_answer(self) -> None:
        """Wait until the server has begun to answer the request after which nothing is read."""
        for upstream in [*self._asked]:
            upstream.recv(1, socket.MSG_PEEK)

    def cut(self) -> None:
        """Cut all connections: what the server has not answered is never answered."""
        for end in (*self._upstream, *self._clients):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.release()

    def close(self) -> None:
        self.release()
        self._listening.close()
        for upstream in self._upstream:
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                upstream = socket.socket()
                # Before it connects: the window that it offers to the server stays so small.
                upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                upstream.connect(self._server)
                for one in (client, upstream):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._upstream.append(upstream)
                self._clients.append(client)
                threading.Thread(target=self._ask, args=(client, upstream), daemon=True).start()
                threading.Thread(target=self._answer, args=(client, upstream), daemon=True).start()

    def _ask(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                with self._lock:
                    if self._left is not None and upstream not in self._asked:
                        self._asked.add(upstream)
                        if self._left == 0:
                            self.stopped.set()
                        else:
                            self._left -= 1
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError), closing(client), closing(upstream):
            while upstream.recv(1, socket.MSG_PEEK):
                with self._lock:
                    self._lock.wait_for(lambda: not self.stopped.is_set())
                    self._asked.discard(upstream)
                client.sendall(upstream.recv(1 << 16))


@contextmanager
def relayed(place: Place) -> Iterator[tuple[Relay, Place]]:
    """Yield a relay to the server of a place, and the place behind it."""
    url = sa.make_url(place.url)
    relay = Relay(url.host or "127.0.0.1", url.port or 0)
    behind = Place(url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False), place.schema)
    try:
        yield relay, behind
    finally:
        relay.close()
        behind.close()


# Seconds between two looks at the waits for locks. MariaDB shows the waits as of the last look of any session, if that
# was less than a tenth of a second ago.
PACE = 0.11


# The number of sessions of these ports that do something else than wait for their client.
BUSY = {
    "postgresql": "select count(*) from pg_stat_activity where client_port in ({}) "
    "and coalesce(wait_event, 'runs') not in ('ClientWrite', 'ClientRead')",
    "mariadb": "select count(*) from information_schema.processlist where substring_index(host, ':', -1) in ({}) "
    "and command <> 'Sleep' and coalesce(state, '') not like 'Writing to net%%'",
}


def await_the_client(place: Place, kind: Kind, relay: Relay) -> None:
    """Wait until the server waits for a client that reads nothing: in the middle of an answer, or after it."""
    relay.await_the_answer()
    busy = BUSY[kind.name].format(", ".join(map(str, relay.ports)))
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
        while watch.exec_driver_sql(busy).scalar_one():
            pass


# Sessions that others wait for, and that the server does not end: those that are not idle in a transaction.
NOT_ENDED = {
    "postgresql": "select holder.pid, holder.state, holder.wait_event, holder.query "
    "from pg_stat_activity as waiting "
    "join pg_stat_activity as holder on holder.pid = any(pg_blocking_pids(waiting.pid)) "
    "where holder.state <> 'idle in transaction'",
    "mariadb": "select holder.id, holder.command, holder.state, holder.info from information_schema.innodb_lock_waits "
    "join information_schema.innodb_trx on trx_id = blocking_trx_id "
    "join information_schema.processlist as holder on holder.id = trx_mysql_thread_id "
    "where holder.command not in ('Sleep', 'Killed')",
}
# What makes the server end a session of ours soon that is idle in a transaction.
IMPATIENT = {
    "postgresql": {"options": "-c idle_in_transaction_session_timeout=1s"},
    "mariadb": {"init_command": "set session idle_transaction_timeout = 1"},
}


def elsewhere(place: Place, kind: Kind, ended: bool = False) -> Place:
    """Return the place for a client that stands for one in another process. If `ended`, the server ends it soon.

    It names the server otherwise, because what a process limits for itself is for each server (mysql/gate.py).
    """
    url = sa.make_url(place.url)
    url = url.set(host="localhost") if url.host == "127.0.0.1" else url
    url = url.update_query_dict(IMPATIENT[kind.name]) if ended else url
    return Place(url.render_as_string(hide_password=False), place.schema, place.opened, place.engines)


# -- what is called ------------------------------------------------------------------------------------------------


class Scene:
    """A queue; or a topic with subscriptions. The client that is suspended uses the first of `consumers`."""

    def __init__(self, database: Database, name: str, options: dict[str, Any]) -> None:
        self.producer: Queue | Topic
        self.consumers = [name]
        # Whether the others release what they pop, because the suspended client is about it.
        self.gives_back = False
        self.grouped = bool(options.get("groups"))
        # Whether what is pushed may have to wait for what is in progress.
        self.full = bool(options.get("strict") or options.get("concurrency", MANY) < MANY)
        if kind := options.get("of_topic"):
            self.grouped = kind == "ordered"
            self.producer = database.create_topic(name, payload="text", groups=self.grouped, keep="consumed")
            self.consumers = [self.producer.subscribe(each, ordered=self.grouped).name for each in ("acting", "other")]
        else:
            self.producer = database.create_queue(name, payload="text", **options)

    def push(self, payload: str) -> None:
        """Push to a group of its own, where there are groups."""
        group: dict[str, Any] = {"group": secrets.token_hex(8)} if self.grouped else {}
        self.producer.push(payload, **group)

    def push_many(self, payload: str, number: int) -> None:
        groups = [secrets.token_hex(8) if self.grouped else None for _ in range(number)]
        self.producer.push_many(NewMessage(payload, group=group) for group in groups)

    def prepared(self, act: Act, acting: Queue) -> list[Claim]:
        """Push and pop what the call needs. Return the messages that its client holds."""
        self.push_many(act.payload, act.lost)
        if act.lost:
            assert acting.pop_many(act.lost, lease=0)
        self.push_many(act.payload, act.hold)
        held = acting.pop_many(act.hold) if act.hold else []
        self.push_many(act.payload, MESSAGES)
        return held


@dataclass(frozen=True)
class Act:
    """A call of a client that is suspended in it."""

    act: Callable[[Queue, list[Claim]], Any]
    hold: int = 0
    """The number of messages that it has popped before."""
    lost: int = 0
    """The number of messages whose lease has expired."""
    payload: str = SMALL
    leased: bool = True
    """Whether messages that are delivered at most once cannot be treated so."""
    of: str = ""
    """What it is called on, if not on all: `queue`, `topic`, or a `plain` one."""


# Calls of several statements with a lock for which others wait, until the server ends the session.
ENDED_BY_THE_SERVER: dict[str, tuple[str, ...]] = {"postgresql": ("seek",), "mariadb": ("seek",)}
MANY = 100


class Others:
    """Who pushes and pops while a client is suspended."""

    def __init__(
        self, place: Place, kind: Kind, scene: Scene, threads: ThreadPoolExecutor, ended: bool = False
    ) -> None:
        self._kind = kind
        self._scene = scene
        self._threads = threads
        self._ended = ended
        self._database = place.open("the served")
        self._watch = place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT")
        self._step = ""

    def close(self) -> None:
        self._watch.close()

    def are_served(self) -> None:
        """Each gets a message, without a wait for the suspended client; if `ended`, when the server has ended it."""
        call = self._threads.submit(self._call)
        while self._kind.blocked and wait([call], PACE).not_done:
            if self._kind.blocked(self._watch):
                lasts = self._watch.exec_driver_sql(NOT_ENDED[self._kind.name]).all() if self._ended else "that client"
                assert not lasts, "somebody waits for it"
        call.result()

    def reached(self, number: int, words: str) -> None:
        """Are served while a client stays at a step.

        SQLite has one writer. While that one is suspended in its turn, from `begin` to `commit`, nobody else writes
        (test_sqlite_turns.py).
        """
        in_turn = words == "begin" or (self._step == "in a turn" and words != "commit")
        self._step = "in a turn" if in_turn else words
        if self._kind.server or self._step not in ("in a turn", "commit"):
            self.are_served()

    def _call(self) -> None:
        self._scene.push("served")
        for name in self._scene.consumers:
            queue = self._database.consumer(name)
            claims = queue.pop_many(1)
            while self._ended and not claims:  # a pump passes over a lock
                claims = queue.pop_many(1)
            assert claims or self._scene.full, "a message for each"
            if self._scene.gives_back and queue.definition.delivery == "at_least_once":
                queue.release_many(claims)
            else:
                queue.complete_many(claims)


FAST = Rate(1_000_000, burst=1_000_000)
SCENES: dict[str, dict[str, Any]] = {
    "queue": {},
    "groups": {"groups": True},
    "fair": {"groups": "fair"},
    "at most once": {"delivery": "at_most_once"},
    "a rate": {"rate": FAST},
    "a rate, at most once": {"rate": FAST, "delivery": "at_most_once"},
    "a rate, groups": {"rate": FAST, "groups": True},
    "places": {"concurrency": MANY},
    "places of groups": {"groups": "fair", "per_group": 50},
    "a rate of groups": {"groups": "fair", "group_rate": FAST},
    "topic": {"of_topic": "plain"},
    "ordered topic": {"of_topic": "ordered"},
}
# Those in which every call is suspended. In the others only the claims are, which are different there; reads are not.
MAIN = ("queue", "groups", "topic", "ordered topic")
ACTS: dict[str, Act] = {
    "pop_many": Act(lambda queue, held: queue.pop_many(MESSAGES), payload=LARGE, leased=False),
    "pop_many completing": Act(lambda queue, held: queue.pop_many(MESSAGES, completing=held), 2, payload=LARGE),
    "pop_many after lost leases": Act(lambda queue, held: queue.pop_many(2 * MESSAGES), lost=2, payload=LARGE),
    "read": Act(lambda queue, held: [queue.peek(MESSAGES), queue.stats(), queue.history(9)], 1, payload=LARGE),
    "complete_many": Act(lambda queue, held: queue.complete_many(held[:2]), 3),
    "fail_many": Act(lambda queue, held: queue.fail_many(held[:2], "why"), 3),
    "release_many": Act(lambda queue, held: queue.release_many(held[:2]), 3),
    "extend_many": Act(lambda queue, held: queue.extend_many(held[:2], 60), 3),
    "progress": Act(lambda queue, held: held[0].progress(0.5), 1, of="queue"),
    "cancel": Act(lambda queue, held: queue.cancel([held[0].id]), 1, of="queue"),
    "seek": Act(lambda queue, held: topics.move(context_of(queue), 1, force=True), of="topic"),
    "note": Act(lambda queue, held: topics.note(context_of(queue), 2, "lake"), of="plain"),
    "bounds": Act(lambda queue, held: topics.offset_of(_topic(queue), "end"), of="topic"),
    "trim": Act(lambda queue, held: topics.trim(_topic(queue)), of="topic"),
}


def _topic(queue: Queue) -> Context:
    context = context_of(queue)
    assert context.table.topic is not None
    topic = catalogue.present(context.runner, context.table.topic)
    return Context.at(context.runner, topic, context.who)


def _fits(scene: str, name: str) -> bool:
    options, act = SCENES[scene], ACTS[name]
    kind = options.get("of_topic", "queue")
    if act.of not in ("", kind, "topic" if kind != "queue" else "queue"):
        return False
    if act.leased and "delivery" in options:
        return False
    return scene in MAIN or name.startswith("pop_many")


CASES = [(scene, name) for scene in SCENES for name in ACTS if _fits(scene, name)]
