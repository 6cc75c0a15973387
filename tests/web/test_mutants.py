"""Mutants of the dashboard: each breaks one promise, and the test of that promise must notice."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore
from typing import Any

import pytest
from markupsafe import Markup

from tablequeue import Database
from tablequeue.database import overview_of
from tablequeue.engines.reads import Reads
from tablequeue.web import actions, guard, pages, render, search
from tests.web import test_guard, test_pages
from tests.web.support import TOKEN, Client, serving

Patch = pytest.MonkeyPatch
Check = Callable[[Client, Database], None]


def escapes_nothing(patch: Patch) -> None:
    patch.setattr(render, "visible", lambda value: Markup(value) if isinstance(value, str) else value)


def shows_everything(patch: Patch) -> None:
    patch.setattr(render, "visible", lambda value: value)


def believes_every_form(patch: Patch) -> None:
    patch.setattr(guard.Session, "wrote", lambda session, value: True)


def believes_every_host(patch: Patch) -> None:
    patch.setattr(guard, "is_loopback", lambda host: True)


def believes_every_token(patch: Patch) -> None:
    patch.setattr(guard.Session, "opens", lambda session, token: True)


def admits_everybody(patch: Patch) -> None:
    patch.setattr(guard.Session, "admits", lambda session, request: True)


def forgets_no_session(patch: Patch) -> None:
    patch.setattr(guard.Session, "end", lambda session, request: None)


def serves_every_site(patch: Patch) -> None:
    patch.setattr(guard.Guard, "_is_of_elsewhere", lambda guard, request, host: False)


def searches_at_once(patch: Patch) -> None:
    patch.setattr(search, "_searching", Semaphore(40))


def sends_no_headers(patch: Patch) -> None:
    patch.setattr(guard, "HEADERS", {})


def purges_for_a_redrive(patch: Patch) -> None:
    patch.setitem(actions.VERBS, "redrive", ("redriven", "purge_dead"))


def cancels_any_batch(patch: Patch) -> None:
    patch.setattr(actions, "name_of", lambda request: "letters")


def allows_every_action(patch: Patch) -> None:
    patch.setattr(actions, "_need_actions", lambda site: None)


def finds_everything(patch: Patch) -> None:
    patch.setattr(search, "ids", lambda queue, state, text: [message.id for message in queue.dead(1000)])


def forgets_the_search(patch: Patch) -> None:
    patch.setattr(actions, "urlencode", lambda values: f"state=dead&{list(values)[-1]}={list(values.values())[-1]}")


def notes_no_queue(patch: Patch) -> None:
    patch.setattr(actions, "_note", lambda site, request, queue, words, **more: actions.log.info(words))


def believes_every_name(patch: Patch) -> None:
    patch.setattr(render.Site, "user_of", lambda site, request: request.headers.get("x-forwarded-user"))


def mixes_queues_up(patch: Patch) -> None:
    of_many = Reads.of_many
    patch.setattr(Reads, "of_many", lambda reads, *given: of_many(reads, *given)[::-1])


def finds_no_name(patch: Patch) -> None:
    patch.setattr(pages, "FILTERS", dict.fromkeys(pages.FILTERS, lambda stats: True))


def all_found(client: Client, queues: Database) -> None:
    test_guard.test_all_that_a_search_finds(client, queues, "purge")


def who(client: Client, queues: Database) -> None:
    records: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions.log, "info", lambda words, *values, **more: records.append(words % values))
        queues.create_queue("work")
        client.post("/queues/work/pause", {"csrf": client.csrf(), "verb": "pause"})
    assert records == ["work: queue paused, from 127.0.0.1"]


def no_name(client: Client, queues: Database) -> None:
    assert "eve" not in client.get("/", **{"X-Forwarded-User": "eve"}).text


def numbers(client: Client, queues: Database) -> None:
    for name, number in (("a", 1), ("b", 2)):
        queues.create_queue(name).push_many(range(number))
    read, _ = overview_of(queues).look(300)
    assert [stats.ready for _, stats in read] == [1, 2]


def filtered(client: Client, queues: Database) -> None:
    queues.create_queue("empty")
    assert "No queue is found." in client.get("/?state=ready").text


def batch(client: Client, queues: Database) -> None:
    test_guard.test_batches_are_cancelled(client, queues)


def hostile(client: Client, queues: Database) -> None:
    test_pages.test_hostile_words_are_shown_and_nothing_else(client, queues, "payload")


def foreign_form(client: Client, queues: Database) -> None:
    test_guard.test_a_form_from_elsewhere_is_refused(client, queues, {}, {})


def foreign_host(client: Client, queues: Database) -> None:
    test_guard.test_a_name_that_points_here_from_elsewhere_is_refused(client, "evil.example")


def token(client: Client, queues: Database) -> None:
    queues.create_queue("work")
    test_guard.test_the_token_opens_the_pages(client)


def no_token(client: Client, queues: Database) -> None:
    queues.create_queue("work")
    test_guard.test_nothing_is_shown_without_the_token(client, "/queues/work")


def logout(client: Client, queues: Database) -> None:
    test_guard.test_a_logout_ends_the_session(client)


def foreign_page(client: Client, queues: Database) -> None:
    test_guard.test_a_page_of_elsewhere_starts_no_search(client, queues, "cross-site")


def one_search(client: Client, queues: Database) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_pages.test_one_search_runs_at_a_time(client, queues, patch)


def headers(client: Client, queues: Database) -> None:
    test_guard.test_every_answer_forbids_what_is_not_ours(client, queues, "/")


def dead_letters(client: Client, queues: Database) -> None:
    test_guard.test_dead_letters_are_redriven_and_purged(client, queues)


LOCKED: dict[str, Any] = {"token": TOKEN, "loopback": False}
MUTANTS: dict[str, tuple[Callable[[Patch], None], Check, dict[str, Any]]] = {
    "pages that escape nothing": (escapes_nothing, hostile, {}),
    "pages that show what turns the text around": (shows_everything, hostile, {}),
    "a form of any site": (believes_every_form, foreign_form, {}),
    "any Host": (believes_every_host, foreign_host, {}),
    "any token": (believes_every_token, token, LOCKED),
    "no token at all": (admits_everybody, no_token, LOCKED),
    "a log-out that leaves the session": (forgets_no_session, logout, LOCKED),
    "a search for a page of any site": (serves_every_site, foreign_page, {}),
    "searches at the same time": (searches_at_once, one_search, {}),
    "no policy": (sends_no_headers, headers, {}),
    "a redrive that purges": (purges_for_a_redrive, dead_letters, {}),
    "all dead letters for those found": (finds_everything, all_found, {}),
    "a redrive that forgets its search": (forgets_the_search, all_found, {}),
    "a log that names no queue": (notes_no_queue, who, {}),
    "a name that no proxy gave": (believes_every_name, no_name, {}),
    "the numbers of another queue": (mixes_queues_up, numbers, {}),
    "a filter that leaves all": (finds_no_name, filtered, {}),
    "a batch of any queue": (cancels_any_batch, batch, {}),
    "an action for readers": (allows_every_action, batch, {}),
}


@pytest.mark.parametrize(("check", "options"), [(check, options) for _, check, options in MUTANTS.values()])
def test_the_dashboard_passes(queues: Database, check: Check, options: dict[str, Any]) -> None:
    with serving(queues, allow_actions=True, **options) as client:
        check(client, queues)


@pytest.mark.parametrize(("mutant", "check", "options"), MUTANTS.values(), ids=MUTANTS)
def test_the_mutant_is_noticed(
    queues: Database, monkeypatch: Patch, mutant: Callable[[Patch], None], check: Check, options: dict[str, Any]
) -> None:
    mutant(monkeypatch)
    with serving(queues, allow_actions=True, **options) as client, pytest.raises(AssertionError):
        check(client, queues)
