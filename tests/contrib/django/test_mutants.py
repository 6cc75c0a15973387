"""Mutants of the backend: each breaks one promise, and the test of that promise must detect it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.db.transaction import TransactionManagementError

from tablequeue.contrib.django import Backend, running
from tablequeue.contrib.django.database import DjangoRunner
from tests.contrib.django import test_backend
from tests.contrib.django.conftest import Site
from tests.servers import Place, only

pytestmark = only("sqlite")


def commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An enqueue commits the transaction of the request."""
    real = DjangoRunner.run

    def run(self: DjangoRunner, *arguments: Any, **options: Any) -> Any:
        result = real(self, *arguments, **options)
        connections[self.alias].connection.commit()
        return result

    monkeypatch.setattr(DjangoRunner, "run", run)


def tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that raises is tried again without being asked to."""
    monkeypatch.setattr(Backend, "retry", property(lambda self: True, lambda self, value: None), raising=False)


def says_it_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal of the end comes before the result is stored."""
    real, pending = running._until_answered, list[Callable[[], Any]]()
    end = running._end

    def later(claim: Any, finish: Callable[[], Any]) -> Any:
        pending.append(lambda: real(claim, finish))
        return True

    def ended(*arguments: Any) -> None:
        end(*arguments)
        pending.pop()()

    monkeypatch.setattr(running, "_until_answered", later)
    monkeypatch.setattr(running, "_end", ended)


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[Site, Place], None]] = {
    commits: test_backend.test_an_enqueue_is_a_part_of_the_transaction,
    tries_again: lambda site, place: test_backend.test_a_task_that_raises_has_failed_unless_it_is_to_be_tried_again(
        site
    ),
    says_it_early: lambda site, place: test_backend.test_the_signal_of_the_end_comes_when_the_result_is_stored(site),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_detected(
    site: Site, place: Place, mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, TransactionManagementError)):
        MUTANTS[mutant](site, place)
