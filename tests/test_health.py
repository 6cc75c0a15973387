"""What a process tells of its health: counters, checks of the database, and the server of the standard library."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from threading import Event

import pytest

from tablequeue import Database, NewMessage
from tablequeue.errors import BadInput, DuplicateKey, LeaseLost
from tablequeue.observe import health_server
from tablequeue.observe.counters import COUNTED, counters
from tablequeue.observe.health import Check, Health
from tablequeue.observe.health_server import MOST_REQUESTS, HealthServer
from tablequeue.observe.metrics import Metric, text
from tests.servers import only
from tests.support import claimed
from tests.web.support import Client

pytestmark = pytest.mark.quick

sqlite = only("sqlite")  # the counters of the other engines: tests/conformance/test_counters.py


@pytest.fixture
def gate() -> Iterator[Event]:
    """An event that a thread may wait for; set at the end of the test at the latest."""
    event = Event()
    yield event
    event.set()


@sqlite
def test_a_conflict_is_no_push(db: Database) -> None:
    queue = db.create_queue("keyed")
    queue.push("x", key="a")
    assert queue.push("x", key="a", on_conflict="skip") is None
    with pytest.raises(DuplicateKey):
        queue.push("x", key="a")
    queue.push("x", key="a", on_conflict="return")
    queue.push_many([NewMessage("x", key="a"), NewMessage("y", key="b")], on_conflict="return")
    queue.push_many([NewMessage("x", key="a"), NewMessage("y", key="c")], on_conflict="skip")
    with pytest.raises(DuplicateKey):
        queue.push_many([NewMessage("x", key="a"), NewMessage("y", key="d")])
    assert counters.read()["pushed_messages", "keyed", ""] == queue.stats().ready == 3


@sqlite
def test_a_topic_is_counted_by_its_name_and_a_subscription_by_its_own(db: Database) -> None:
    topic = db.create_topic("by-name")
    mail = topic.subscribe("mail")
    topic.push("a")
    topic.push_many([*"bc"])
    mail.complete_many(mail.pop_many(3))
    found = counters.read()
    assert found["pushed_messages", "by-name", ""] == 3
    assert found["popped_messages", "by-name/mail", ""] == found["completed_messages", "by-name/mail", ""] == 3


@sqlite
def test_a_lost_lease_is_counted(db: Database) -> None:
    queue = db.create_queue("losing")
    queue.push_many([*"ab"])
    one, two = claimed(queue), claimed(queue)
    one.complete()
    for lose in (one.complete, one.extend, lambda: queue.pop(completing=one), lambda: queue.complete_many([one, two])):
        with pytest.raises(LeaseLost):
            lose()
    assert counters.read()["lost_leases", "losing", ""] == 4
    assert counters.read()["completed_messages", "losing", ""] == 2


@sqlite
def test_a_counter_is_there_before_it_rises(db: Database) -> None:
    db.create_queue("used").push("x")
    answer = Health(lambda: None).answer("/metrics")
    assert answer
    assert 'tablequeue_pushed_messages_total{queue="used"} 1.0\n' in answer.body
    assert 'tablequeue_lost_leases_total{queue="used"} 0.0\n' in answer.body


@sqlite
def test_a_forked_child_begins_at_zero(db: Database) -> None:
    queue = db.create_queue("begins_at_zero")
    queue.push("x")
    child = os.fork()
    if not child:
        os._exit(len(counters.read()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counters.read()["pushed_messages", "begins_at_zero", ""] == 1


def test_a_check_that_hangs_is_one_thread(monkeypatch: pytest.MonkeyPatch, gate: Event) -> None:
    calls: list[int] = []

    def hang() -> None:
        calls.append(1)
        gate.wait()

    monkeypatch.setattr("tablequeue.observe.health.PATIENCE", 0.01)
    check = Check(hang)
    assert [check.passes() for _ in range(5)] == [False] * 5
    assert len(calls) == 1
    gate.set()
    monkeypatch.setattr("tablequeue.observe.health.PATIENCE", 60)
    assert check.passes()


def test_a_check_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(1)
        assert len(calls) > 1

    check = Check(fail_once)
    assert not check.passes()
    assert not check.passes(), "what it found holds for a moment"
    monkeypatch.setattr("tablequeue.observe.health.FRESH", 0)
    assert check.passes()
    assert len(calls) == 2


def test_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablequeue.observe.health.FRESH", 0)
    is_ = {"connected": True, "stopping": False, "alive": True}

    def check() -> None:
        assert is_["connected"]

    health = Health(check, stopping=lambda: is_["stopping"], alive=lambda: is_["alive"], details=lambda: {"last": 5})
    with HealthServer(health, "127.0.0.1", 0) as server:
        client = Client(server.port)

        def codes() -> tuple[int, int]:
            return client.get("/healthz").status, client.get("/readyz").status

        assert codes() == (200, 200)
        assert '"last": 5' in client.get("/readyz?verbose").text
        assert "tablequeue_connected 1.0\n" in client.get("/metrics").text
        for name, value, expected in (("connected", False, (200, 503)), ("stopping", True, (200, 503))):
            is_[name] = value
            assert codes() == expected
            is_[name] = not value
        is_["alive"] = False
        assert codes() == (503, 503)
        assert client.get("/").status == 404
        assert client.post("/healthz", {}).status == 501
        assert client.get("/healthz", host="queues.example.org").status == 421
        assert client.get("/healthz", host="[").status == 421


def test_clients_that_send_nothing_cost_no_more_threads_than_there_are_places() -> None:
    with HealthServer(Health(lambda: None), "127.0.0.1", 0) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_REQUESTS + 1)]
        try:
            assert silent[-1].recv(1) == b"", "refused"
            silent[0].sendall(b"\xff\x00 rubbish\r\n\r\n")
            assert b" 400 " in silent[0].makefile("rb").read()
        finally:
            for each in silent:
                each.close()


def test_a_client_that_sends_a_byte_now_and_then_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "REQUEST_WITHIN", 0.3)
    with (
        HealthServer(Health(lambda: None), "127.0.0.1", 0) as server,
        socket.create_connection(("127.0.0.1", server.port)) as slow,
    ):
        slow.settimeout(0.05)
        for _ in range(400):
            try:
                slow.sendall(b"G")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("the connection is not ended")


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadInput, match="health-port"):
        HealthServer(Health(lambda: None), "127.0.0.1", taken.getsockname()[1])
    with HealthServer(Health(lambda: None), "::1", 0) as server:
        assert server.url.startswith("http://[::1]:")


def test_the_text_of_metrics() -> None:
    metric = Metric("tablequeue_x_total", "Numbers.", "counter")
    metric.add(12_345_678, queue='a "b"\\\n')
    metric.add(None, queue="none")
    lines = text([metric]).splitlines()
    assert lines[:2] == ["# HELP tablequeue_x_total Numbers.", "# TYPE tablequeue_x_total counter"]
    assert lines[2:] == [r'tablequeue_x_total{queue="a \"b\"\\\n"} 12345678.0']
    assert all(name == name.lower() and help.endswith(".") and "\\" not in help for name, help in COUNTED.items())
