"""The checks of the stress command, on ledgers written by hand: each violation is detected, and legal runs pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tablequeue.errors import ConnectionLost, Locked
from tests.stress import limits, topics
from tests.stress.ledger import CANCELLED, DONE, PENDING, REFUSED, UNKNOWN, Got, Ledger, New, Op, read
from tests.stress.mix import KINDS, QUEUES, Mix, drawn
from tests.stress.run import judge
from tests.stress.story import Row

pytestmark = pytest.mark.quick

INF = float("inf")


class Book:
    """A possible ledger. Times are in seconds; by default an operation takes a tenth of a second."""

    def __init__(self, queue: str = "fifo") -> None:
        self.queue = queue
        self.ops: list[Op] = []
        self.rows: list[Row] = []
        self._names = count()

    def op(self, verb: str, begin: float, end: float | None = None, who: str = "ada", **words: Any) -> Op:
        last = begin + 0.1 if end is None else end
        words = {"outcome": DONE if last < INF else PENDING, "queue": self.queue, **words}
        self.ops.append(Op(f"{who}#{next(self._names)}", who, verb, begin, last, **words))
        return self.ops[-1]

    def push(self, begin: float, *uids: str, ids: Iterable[int | None] = (), **words: Any) -> Op:
        """Push messages whose ids are the numbers in their names."""
        new = {name: words.pop(name) for name in ("group", "key", "delay", "priority") if name in words}
        given = tuple(ids) or tuple(int(uid[1:]) for uid in uids)
        given = () if words.get("outcome", DONE) in (REFUSED, UNKNOWN) or words.get("end") == INF else given
        return self.op("push", begin, new=tuple(New(uid, **new) for uid in uids), ids=given, **words)

    def pop(self, begin: float, *uids: str, attempt: int = 1, verb: str = "pop", **words: Any) -> Op:
        number = next(self._names)
        got = tuple(Got(int(uid[1:]), uid, f"token {number}", attempt) for uid in uids)
        return self.op(verb, begin, got=got, **{"n": max(1, len(uids)), "lease": 2.0, **words})

    def finish(self, verb: str, begin: float, pop: Op, *uids: str, **words: Any) -> Op:
        held = tuple((got.id, got.token) for got in pop.got if not uids or got.uid in uids)
        return self.op(verb, begin, held=held, **{"who": pop.who, **words})

    def row(self, *uids: str, state: str = "finished", **words: Any) -> None:
        self.rows += (Row(self.queue, uid, int(uid[1:]), state, **words) for uid in uids)

    def lived(self, begin: float, *uids: str, **words: Any) -> None:
        """A message that is pushed, popped and completed."""
        for uid in uids:
            self.push(begin, uid, **words)
            self.finish("complete", begin + 0.4, self.pop(begin + 0.2, uid))
            self.row(uid)
            begin += 0.6

    def kinds(self, side_by_side: bool = True) -> set[str]:
        """Return the kinds of violations that are found."""
        mix = Mix(1, (), tuple(QUEUES), 1, 1, 1)
        ops = sorted(self.ops, key=lambda op: op.begin)
        return {violation.kind for violation in judge(ops, self.rows, mix, side_by_side)[1]}


@pytest.fixture
def book() -> Book:
    return Book()


def in_order(queue: str) -> dict[str, Any]:
    return {"group": "g"} if queue == "grouped" else {}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_good_life(queue: str) -> None:
    book = Book(queue)
    for number in range(1, 4):
        book.push(number, f"m{number}", **in_order(queue))
        book.finish("complete", number + 0.4, book.pop(number + 0.2, f"m{number}"))
    book.row("m1", "m2", "m3")
    assert book.kinds() == set()


# -- places --------------------------------------------------------------------------------------------------------


def test_an_acknowledged_message_is_lost(book: Book) -> None:
    book.push(1, "m1")
    assert book.kinds() == {"lost"}


def test_what_nobody_was_told_may_be_lost(book: Book) -> None:
    book.push(1, "m1", end=INF)
    book.push(1, "m2", outcome=UNKNOWN)
    book.push(1, "m3", outcome=CANCELLED)
    assert book.kinds() == set()


def test_a_raw_error_of_consume_is_that_of_a_commit_in_its_block(book: Book) -> None:
    book.op("commit", 2, who="ada", outcome=UNKNOWN, error="sqlalchemy.exc.OperationalError", txn="t")
    book.op("consume", 1, 3, who="ada", outcome=UNKNOWN, error="sqlalchemy.exc.OperationalError")
    assert book.kinds() == set()
    book.op("consume", 1, 3, who="bob", outcome=UNKNOWN, error="sqlalchemy.exc.OperationalError")
    assert book.kinds() == {"raw error"}


def test_a_refused_push_is_there(book: Book) -> None:
    book.push(1, "m1", outcome=REFUSED, error="Locked")
    book.row("m1")
    assert book.kinds() == {"undone"}


def test_a_message_is_there_twice(book: Book) -> None:
    book.lived(1, "m1")
    book.rows.append(replace(book.rows[0], state="ready", id=9))
    assert "doubled" in book.kinds()


def test_an_id_is_given_twice(book: Book) -> None:
    book.lived(1, "m1")
    book.push(3, "m2", ids=[1])
    book.rows.append(Row("fifo", "m2", 1, "finished"))
    assert "one id" in book.kinds()


def test_half_a_batch(book: Book) -> None:
    book.push(1, "m1", "m2", outcome=UNKNOWN)
    book.row("m1")
    assert book.kinds() == {"half a batch"}


def test_half_a_transaction(book: Book) -> None:
    book.push(1, "m1", txn="t")
    book.push(2, "m2", txn="t")
    book.op("commit", 3, outcome=UNKNOWN, txn="t", queue="")
    book.row("m2")
    assert "half a batch" in book.kinds()


def test_a_rolled_back_push_is_there(book: Book) -> None:
    book.push(1, "m1", txn="t")
    book.op("rollback", 2, txn="t", queue="")
    book.row("m1")
    assert book.kinds() == {"undone"}


def test_a_client_that_dies_before_its_commit_has_pushed_nothing(book: Book) -> None:
    book.push(1, "m1", txn="t")
    book.op("kill", 2, who="run", whom="ada", queue="")
    assert book.kinds() == set()
    book.row("m1")
    assert book.kinds() == {"undone"}


def test_a_completed_message_is_live(book: Book) -> None:
    book.push(1, "m1")
    book.finish("complete", 3, book.pop(2, "m1"))
    book.row("m1", state="in_progress", attempts=1)
    assert {"unfinished", "stranded"} == book.kinds()


# -- claims --------------------------------------------------------------------------------------------------------


def test_held_by_two(book: Book) -> None:
    book.push(1, "m1")
    ada, bob = book.pop(2, "m1"), book.pop(2.5, "m1", who="bob", attempt=2)
    book.finish("complete", 3, ada)
    book.finish("complete", 3.5, bob, outcome=REFUSED, error="LeaseLost", lost=(1,))
    book.row("m1")
    assert "held by two" in book.kinds()


def test_a_lease_that_is_over_frees_its_message(book: Book) -> None:
    book.push(1, "m1")
    ada, bob = book.pop(2, "m1"), book.pop(4.2, "m1", who="bob", attempt=2)
    book.finish("complete", 4.5, bob)
    book.finish("complete", 5, ada, outcome=REFUSED, error="LeaseLost", lost=(1,))
    book.row("m1")
    assert book.kinds() == set()


def test_an_extended_lease(book: Book) -> None:
    book.push(1, "m1")
    ada = book.pop(2, "m1")
    book.finish("extend", 3, ada, seconds=4.0)
    book.finish("complete", 6.5, book.pop(5, "m1", who="bob", attempt=2))
    book.finish("complete", 6.6, ada, outcome=REFUSED, error="LeaseLost", lost=(1,))
    book.row("m1")
    assert "held by two" in book.kinds()


def test_a_pop_that_overlaps_with_the_release_may_get_it(book: Book) -> None:
    book.push(1, "m1")
    book.finish("release", 3, book.pop(2, "m1"))
    book.finish("complete", 4, book.pop(2.5, "m1", who="bob", end=3.5))
    book.row("m1")
    assert book.kinds() == set()


def test_finished_twice(book: Book) -> None:
    book.push(1, "m1")
    ada, bob = book.pop(2, "m1"), book.pop(4.2, "m1", who="bob", attempt=2)
    book.finish("complete", 4.4, ada)
    book.finish("complete", 4.5, bob)
    book.row("m1")
    assert {"finished twice", "not fenced"} <= book.kinds()


def test_an_unknown_completion_may_not_have_been(book: Book) -> None:
    book.push(1, "m1")
    book.finish("complete", 2.5, book.pop(2, "m1"), outcome=UNKNOWN)
    book.finish("complete", 5, book.pop(4.2, "m1", who="bob", attempt=2))
    book.row("m1")
    assert book.kinds() == set()


def test_a_finished_message_comes_back(book: Book) -> None:
    book.lived(1, "m1")
    book.pop(5, "m1", attempt=2)
    assert "came back" in book.kinds()


def test_at_most_once_and_then_again() -> None:
    book = Book("once")
    book.push(1, "m1")
    book.pop(2, "m1")
    book.pop(8, "m1", attempt=2)
    book.row("m1", state="lost")
    assert "delivered twice" in book.kinds()


def test_a_message_that_is_taken_in_an_open_transaction(book: Book) -> None:
    book.push(1, "m1")
    book.pop(2, "m1", verb="take", txn="t")
    book.finish("complete", 4, book.pop(3, "m1", who="bob"))
    book.op("rollback", 5, txn="t", queue="")
    book.row("m1")
    assert "held by two" in book.kinds()


def test_a_rolled_back_take_gives_the_message_back(book: Book) -> None:
    book.push(1, "m1")
    book.pop(2, "m1", verb="take", txn="t")
    book.op("rollback", 3, txn="t", queue="")
    book.finish("complete", 4, book.pop(3.2, "m1", who="bob"))
    book.row("m1")
    assert book.kinds() == set()


def test_a_committed_take_is_final(book: Book) -> None:
    book.push(1, "m1")
    book.pop(2, "m1", verb="take", txn="t")
    book.op("commit", 3, txn="t", queue="")
    book.finish("complete", 5, book.pop(4, "m1", who="bob"))
    book.row("m1")
    assert {"came back", "finished twice"} <= book.kinds()


def test_a_commit_of_unknown_outcome_that_left_something(book: Book) -> None:
    book.push(1, "m1")
    book.pop(2, "m1", verb="take", txn="t")
    book.push(2.2, "m2", txn="t")
    book.op("commit", 3, outcome=UNKNOWN, txn="t", queue="")
    book.finish("complete", 5, book.pop(4, "m1", who="bob"))
    book.row("m1")
    assert book.kinds() == set()
    book.row("m2")
    assert "came back" not in book.kinds(), "nobody knows when it was"
    assert "finished twice" in book.kinds()


def test_a_refusal_of_the_consumer_that_holds_the_lease(book: Book) -> None:
    book.push(1, "m1")
    ada = book.pop(2, "m1")
    book.finish("complete", 2.5, ada, outcome=REFUSED, error="LeaseLost", lost=(1,))
    book.finish("complete", 5, book.pop(4.2, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == {"refused in vain"}


def test_an_uncommitted_message_is_popped(book: Book) -> None:
    book.push(1, "m1", txn="t")
    pop = book.pop(2, "m1", who="bob")
    book.op("commit", 3, txn="t", queue="")
    book.finish("complete", 3.5, pop)
    book.row("m1")
    assert "uncommitted" in book.kinds()


def test_a_call_that_waits_for_a_client_that_hangs(book: Book) -> None:
    book.push(1, "m1")
    book.op("stop", 1.5, 14, who="run", whom="bob", queue="")
    book.finish("complete", 16, book.pop(2, "m1", end=14.5, lease=20.0))
    book.row("m1")
    assert book.kinds() == {"blocked"}
    book.op("stop", 1.6, 14, who="run", whom="ada", queue="")
    assert book.kinds() == set()


# -- attempts and times --------------------------------------------------------------------------------------------


def test_an_unrecorded_claim(book: Book) -> None:
    book.push(1, "m1")
    book.op("pop", 1.5, outcome=CANCELLED, who="bob")
    book.finish("complete", 4, book.pop(3.8, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == {"claimed unnoticed"}


@pytest.mark.parametrize("outcome", [UNKNOWN, PENDING])
def test_a_claim_of_a_client_that_died(book: Book, outcome: str) -> None:
    book.push(1, "m1")
    book.op("pop", 1.5, INF if outcome == PENDING else None, outcome=outcome, who="bob")
    book.op("kill", 1.7, who="run", whom="bob", queue="")
    book.finish("complete", 4, book.pop(3.8, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == set()


def test_a_claim_that_does_not_count(book: Book) -> None:
    book.push(1, "m1")
    book.pop(2, "m1")
    book.finish("complete", 4.6, book.pop(4.2, "m1", who="bob"))
    book.row("m1")
    assert book.kinds() == {"not counted"}


def test_a_release_does_not_count(book: Book) -> None:
    book.push(1, "m1")
    book.finish("release", 2.2, book.pop(2, "m1"))
    book.finish("complete", 4.6, book.pop(4.2, "m1", who="bob"))
    book.row("m1")
    assert book.kinds() == set()


@pytest.mark.parametrize("verb", ["complete", "release"])
def test_what_a_cancelled_task_had_begun(book: Book, verb: str) -> None:
    book.push(1, "m1")
    book.finish(verb, 2, book.pop(1.5, "m1", lease=3.0), outcome=CANCELLED)
    book.finish("complete", 5, book.pop(4.7, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == {"forgotten"}
    book.op("stop", 2, 4.6, who="bob", whom="bob")
    assert book.kinds() == {"forgotten"}
    assert book.kinds(side_by_side=False) == set(), "it waited for the one writer, and its lease ended"
    book.op("kill", 2.5, who="run", whom="ada", queue="")
    assert book.kinds() == set()


def test_what_was_released_begins_anew(book: Book) -> None:
    book.push(1, "m1")
    book.finish("release", 2, book.pop(1.5, "m1", lease=3.0), outcome=CANCELLED)
    book.pop(2.5, "m1")  # and its lease expires
    book.finish("complete", 5, book.pop(4.7, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == set()


def test_a_message_before_its_time(book: Book) -> None:
    book.push(1, "m1", delay=1.0)
    book.finish("complete", 1.9, book.pop(1.7, "m1"))
    book.row("m1")
    assert book.kinds() == {"early"}


def test_a_retry_before_its_time(book: Book) -> None:
    book.push(1, "m1")
    book.finish("fail", 2, book.pop(1.5, "m1"), state="scheduled", delay=1.0, soonest=0.9)
    book.finish("complete", 2.9, book.pop(2.6, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == {"early"}


def test_a_dead_letter_is_popped(book: Book) -> None:
    book.push(1, "m1")
    book.finish("fail", 2, book.pop(1.5, "m1"), state="dead")
    again = book.pop(3, "m1", attempt=2)
    book.finish("complete", 4, again)
    book.row("m1")
    assert book.kinds() == {"dead, and back"}
    book.op("redrive", 2.5, held=((1, ""),))
    assert book.kinds() == set()


# -- keys ----------------------------------------------------------------------------------------------------------


def test_a_key_twice(book: Book) -> None:
    book.push(1, "m1", key="k")
    book.push(1.2, "m2", key="k")
    book.finish("complete", 3, book.pop(2, "m1", "m2"))
    book.row("m1", "m2")
    assert book.kinds() == {"key twice"}


def test_a_key_of_a_message_that_a_cancelled_task_lost(book: Book) -> None:
    book.queue = "once"
    book.push(1, "m1", key="k")
    book.push(1.2, "m2", key="k")
    book.finish("complete", 3, book.pop(2, "m2"))
    book.push(2.5, "m3", key="k", outcome=REFUSED, error="DuplicateKey")
    book.row("m1", state="lost", error="asyncio.exceptions.CancelledError")
    book.row("m2")
    assert book.kinds() == set()


def test_a_key_that_is_free_again(book: Book) -> None:
    book.lived(1, "m1", "m2", key="k")
    assert book.kinds() == set()


def test_a_push_that_returns_after_its_message_was_finished(book: Book) -> None:
    book.push(1, "m1", key="k", end=3.2)
    book.finish("complete", 2, book.pop(1.5, "m1"))
    book.push(3, "m2", key="k")
    book.finish("complete", 5, book.pop(4, "m2"))
    book.row("m1", "m2")
    assert book.kinds() == set()


def test_a_free_key_is_refused(book: Book) -> None:
    book.lived(1, "m1", key="k")
    book.push(4, "m2", key="k", outcome=REFUSED, error="DuplicateKey")
    assert book.kinds() == {"key free"}


def test_a_key_whose_owner_may_live_is_refused(book: Book) -> None:
    book.push(1, "m1", key="k", outcome=UNKNOWN)
    book.push(4, "m2", key="k", outcome=REFUSED, error="DuplicateKey")
    book.push(5, "m3", key="k", ids=[None], conflict="skip")
    assert book.kinds() == set()


# -- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["strict", "grouped"])
def test_two_of_a_group(queue: str) -> None:
    book = Book(queue)
    book.push(1, "m1", "m2", **in_order(queue))
    first, second = book.pop(2, "m1"), book.pop(2.2, "m2", who="bob")
    book.finish("complete", 3, first)
    book.finish("complete", 3, second)
    book.row("m1", "m2")
    assert "two of a group" in book.kinds()


@pytest.mark.parametrize("queue", ["strict", "grouped"])
def test_overtaken(queue: str) -> None:
    book = Book(queue)
    book.push(1, "m1", **in_order(queue))
    book.push(2, "m2", **in_order(queue))
    book.finish("complete", 4, book.pop(3, "m2"))
    book.finish("complete", 6, book.pop(5, "m1"))
    book.row("m1", "m2")
    assert {"overtaken", "out of turn"} == book.kinds()


@pytest.mark.parametrize("queue", ["strict", "grouped"])
def test_a_retry_that_is_overtaken(queue: str) -> None:
    book = Book(queue)
    book.push(1, "m1", **in_order(queue))
    book.push(2, "m2", **in_order(queue))
    book.finish("fail", 2.5, book.pop(2.3, "m1"), state="scheduled", delay=1.0, soonest=0.5)
    book.finish("complete", 2.9, book.pop(2.7, "m2"))
    book.finish("complete", 4, book.pop(3.7, "m1", attempt=2))
    book.row("m1", "m2")
    assert "overtaken" in book.kinds()


def test_who_was_committed_later_may_come_later() -> None:
    book = Book("strict")
    book.push(1, "m1", txn="t")
    book.push(2, "m2")
    book.finish("complete", 3.4, book.pop(3, "m2", end=3.3))
    book.op("commit", 3.1, txn="t", queue="")
    book.finish("complete", 5, book.pop(4, "m1"))
    book.row("m1", "m2")
    assert book.kinds() == set()


def test_the_lowest_id_when_the_turn_comes() -> None:
    book = Book("strict")
    book.push(0, "m1")
    book.push(1, "m2", txn="t")  # it has its id, and is committed after the third, but before the turn of either
    book.push(2, "m3")
    book.op("commit", 3, txn="t", queue="")
    book.finish("complete", 4, book.pop(0.5, "m1", lease=9))
    book.finish("complete", 5, book.pop(4.5, "m3"))
    book.finish("complete", 6, book.pop(5.5, "m2"))
    book.row("m1", "m2", "m3")
    assert book.kinds() == {"out of turn"}


def test_a_lower_id_that_is_committed_when_another_one_has_its_turn_already() -> None:
    book = Book("strict")
    book.push(1, "m1", txn="t")
    book.push(2, "m2")
    book.op("commit", 3, txn="t", queue="")
    book.finish("complete", 5, book.pop(4, "m2"))
    book.finish("complete", 6, book.pop(5.5, "m1"))
    book.row("m1", "m2")
    assert book.kinds() == set()


def test_a_dead_letter_frees_its_group() -> None:
    book = Book("strict")
    book.push(1, "m1")
    book.push(2, "m2")
    book.finish("fail", 3, book.pop(2.5, "m1"), state="dead")
    book.finish("complete", 4, book.pop(3.5, "m2"))
    book.row("m2")
    book.row("m1", state="dead", attempts=1)
    assert book.kinds() == set()


def test_a_batch_out_of_order(book: Book) -> None:
    book.push(1, "m1", "m2")
    book.finish("complete", 3, book.pop(2, "m2", "m1"))
    book.row("m1", "m2")
    assert book.kinds() == {"batch out of order"}


# -- lateness ------------------------------------------------------------------------------------------------------


def looked_in_vain(book: Book, begin: float, end: float) -> None:
    while begin < end:
        book.pop(begin, who="bob")
        begin += 0.2


def test_passed_over_for_long(book: Book) -> None:
    book.push(1, "m1")
    looked_in_vain(book, 1.2, 4)
    book.finish("complete", 4.4, book.pop(4.2, "m1"))
    book.row("m1")
    assert book.kinds() == {"late"}


def test_passed_over_for_a_moment(book: Book) -> None:
    book.push(1, "m1")
    looked_in_vain(book, 1.2, 2.8)
    book.finish("complete", 4.4, book.pop(4.2, "m1"))
    book.row("m1")
    assert book.kinds() == set()


def test_behind_a_backlog_nothing_is_late(book: Book) -> None:
    book.push(1, *(f"m{number}" for number in range(1, 20)))
    for number in range(1, 20):
        book.finish("complete", number + 0.7, book.pop(number + 0.5, f"m{number}"))
        book.row(f"m{number}")
    assert book.kinds() == set()


def test_a_later_one_is_popped_instead(book: Book) -> None:
    book.push(1, "m1")
    for number in range(2, 9):
        book.push(number / 2, f"m{number}")
        book.finish("complete", number / 2 + 0.2, book.pop(number / 2 + 0.1, f"m{number}"))
        book.row(f"m{number}")
    book.finish("complete", 4.9, book.pop(4.8, "m1"))
    book.row("m1")
    assert book.kinds() == {"late"}


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("stall", {"queue": ""}),
        ("server", {"queue": ""}),
        ("pop", {"outcome": CANCELLED}),
        ("pop", {"outcome": UNKNOWN}),
    ],
)
def test_what_excuses_a_delay(book: Book, verb: str, words: dict[str, Any]) -> None:
    book.push(1, "m1")
    book.op(verb, 1.5, 3.5, who="run", **words)
    looked_in_vain(book, 1.2, 4)
    book.finish("complete", 4.4, book.pop(4.2, "m1"))
    book.row("m1")
    assert book.kinds() == set()


def test_a_message_whose_lease_is_over_is_late(book: Book) -> None:
    book.push(1, "m1")
    book.pop(1.2, "m1", who="dead")
    looked_in_vain(book, 1.4, 6.4)
    book.finish("complete", 6.8, book.pop(6.6, "m1", attempt=2))
    book.row("m1")
    assert book.kinds() == {"late"}


def test_a_consumer_that_is_not_woken() -> None:
    book = Book("waited")
    book.push(1, "m1")
    book.finish("complete", 4, book.pop(0.5, "m1", end=3.9, wait=3.5))
    book.row("m1")
    assert book.kinds() == set(), "it ended when it had got it"
    book.pop(0.5, end=4.5, wait=3.5, who="bob")
    book.ops[1] = replace(book.ops[1], begin=3.8)
    assert book.kinds() == {"not woken"}


@pytest.mark.parametrize("queue", ["strict", "grouped"])
def test_a_group_whose_turn_does_not_come(queue: str) -> None:
    book = Book(queue)
    book.push(1, "m1", "m2", **in_order(queue))
    book.finish("complete", 2, book.pop(1.5, "m1"))
    looked_in_vain(book, 2.2, 5)
    book.finish("complete", 5.5, book.pop(5.2, "m2"))
    book.row("m1", "m2")
    assert book.kinds() == {"late"}


def test_a_group_that_waits_for_a_retry_is_not_late() -> None:
    book = Book("strict")
    book.push(1, "m1", "m2")
    book.finish("fail", 2, book.pop(1.5, "m1"), state="scheduled", delay=3.0, soonest=2.0)
    looked_in_vain(book, 2.2, 5)
    book.finish("complete", 5.5, book.pop(5.2, "m1", attempt=2))
    book.finish("complete", 6.5, book.pop(6.2, "m2"))
    book.row("m1", "m2")
    assert book.kinds() == set()


# -- topics --------------------------------------------------------------------------------------------------------


def of_topics(book: Book, rest: int = 0) -> set[str]:
    return {violation.kind for violation in topics.judge(book.ops, True, rest)}


@pytest.fixture
def mail() -> Book:
    """Two messages: one that is completed, and one whose first lease expires."""
    book = Book("mail")
    book.push(1, "m1", "m2", queue="")
    book.finish("complete", 2, book.pop(1.5, "m1"))
    book.pop(1.6, "m2", who="dead")
    book.finish("complete", 5, book.pop(4.8, "m2"))
    for uid in ("m1", "m2"):
        book.finish("complete", 6, book.pop(5.8, uid, queue="turns"), queue="turns")
    assert of_topics(book) == set()
    return book


def test_a_lease_of_a_topic(mail: Book) -> None:
    mail.pop(1.8, "m2", who="thief")
    assert of_topics(mail) == {"two"}


def test_a_lease_that_a_forced_seek_has_ended(mail: Book) -> None:
    mail.op("seek", 1.7, whom="beginning", by="force")
    for uid in ("m1", "m2"):
        mail.finish("complete", 2.6, mail.pop(2.2, uid), uid)
    assert of_topics(mail) == set()


@pytest.mark.parametrize("by", ["", "force"])
def test_a_lease_that_is_lost_too_early(mail: Book, by: str) -> None:
    mail.finish("fail", 2, mail.pop(1.8, "m2"), outcome=REFUSED, error="LeaseLost", lost=(2,))
    mail.ops[3] = replace(mail.ops[3], end=INF, outcome=PENDING)
    mail.op("seek", 1.7, 1.9, whom="end", by=by)
    assert of_topics(mail) == (set() if by else {"early"})


def test_what_a_seek_asks_for(mail: Book) -> None:
    mail.op("seek", 7, whom="beginning")
    assert of_topics(mail) == {"missing"}
    mail.ops[-1] = replace(mail.ops[-1], outcome=UNKNOWN)
    assert of_topics(mail) == set(), "nobody knows"


def test_what_is_left(mail: Book) -> None:
    assert of_topics(mail, rest=1) == {"missing"}
    mail.push(7, "m3", queue="")
    assert of_topics(mail) == {"missing"}


@pytest.mark.parametrize("name", limits.QUEUES)
def test_limits(name: str) -> None:
    book = Book(name)
    for number in range(limits.QUEUES[name].places):
        book.pop(1 + number / 10, f"a{number}", end=1.01 + number / 10)
    assert of_topics(book) == set()
    book.pop(1.5, "b100", end=1.51)
    assert of_topics(book) == ({"many"} if name == "limited" else set()), "another group has places of its own"
    book.pop(1.5, "a101", end=1.51)
    assert of_topics(book) == {"many"}
    book = Book(name)
    book.pop(1, *(f"a{number}" for number in range(20)))
    assert of_topics(book) == {"quick"}


def test_a_handle_of_another_topic(book: Book) -> None:
    book.op("pop", 1, queue="other", text="one one")
    assert of_topics(book) == set()
    book.op("pop", 1, queue="other", text="one two")
    assert of_topics(book) == {"foreign"}


def test_a_call_that_waits_for_another_client(mail: Book) -> None:
    mail.pop(10, end=23)
    assert of_topics(mail) == {"blocked"}
    mail.op("stop", 11, 20, who="run", whom="bob")
    assert of_topics(mail) == {"blocked"}
    assert not [*topics.waited(mail.ops, side_by_side=False)], "there is one writer at a time"
    mail.op("stop", 11, 20, who="run", whom="ada")
    assert of_topics(mail) == set()


def test_an_error_of_a_topic(mail: Book) -> None:
    mail.pop(10, error="sqlite3.OperationalError", outcome=UNKNOWN)
    assert of_topics(mail) == {"error"}


# -- the ledger itself ---------------------------------------------------------------------------------------------


def test_what_was_refused_lost_or_torn_off(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "ada")
    with pytest.raises(Locked), ledger.op("push", queue="fifo", new=[["m1"]]):
        raise Locked("busy", "wait")
    with pytest.raises(ConnectionLost), ledger.op("push", queue="fifo", new=[["m2"]]):
        raise ConnectionLost("gone", "again")
    ledger.begin("push", queue="fifo", new=[["m3"]])
    with (tmp_path / "ada.jsonl").open("a") as file:
        file.write('{"op": "ada#3", "verb": "pu')
    ops = read(tmp_path)
    assert [op.outcome for op in ops] == [REFUSED, UNKNOWN, PENDING]
    assert [op.new[0].uid for op in ops] == ["m1", "m2", "m3"]
    assert ops[0].begin <= ops[0].end < INF


def test_a_mix_is_drawn_from_its_seed() -> None:
    one, same, other = (drawn(seed, list(KINDS), list(QUEUES)) for seed in (7, 7, 8))
    assert one == same != other
    assert Mix.loads(one.dumps()) == one
