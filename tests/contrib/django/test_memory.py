"""What needs one database only, in memory: tools for tests, the admin, checks, and `flush`."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone

from tablequeue import Backoff, Rate
from tablequeue.contrib.django import Backend, admin
from tablequeue.contrib.django.compat import TaskResultStatus, task_backends
from tablequeue.contrib.django.database import url_of
from tablequeue.contrib.django.testing import enqueued, run_tasks
from tests.contrib.django.tasks import add, chain, leave, ran

PATH = "tablequeue.contrib.django.Backend"
LIST, TASK = "/admin/tablequeue/task/", "/admin/tablequeue/task/{}/change/"


@pytest.fixture(autouse=True)
def _memory(memory: None) -> None:
    ran.clear()


def backend() -> Backend:
    found: Backend = task_backends["default"]
    return found


def test_a_test_collects_tasks_and_runs_them_at_once() -> None:
    with transaction.atomic():
        with enqueued() as tasks:
            chain.enqueue(2)
            add.using(queue_name="mail", priority=3).enqueue(1, 2)
        assert [(result.task.func, result.args) for result in tasks] == [(chain.func, [2]), (add.func, [1, 2])]
        add.using(run_after=timezone.now() + timedelta(days=1)).enqueue(9, 9)
        bad = leave.enqueue()
        results = run_tasks()
        assert ran == [2, 1, 0, (1, 2)]
        assert [result.status for result in results].count(TaskResultStatus.SUCCESSFUL) == 4
        (failed,) = [result for result in results if result.status == TaskResultStatus.FAILED]
        assert (failed.id, failed.errors[0].exception_class) == (bad.id, SystemExit)
        tasks[1].refresh()
        assert tasks[1].return_value == 3
        transaction.set_rollback(True)
    assert (len(tasks), backend().queue("default").peek(), backend().queue("default").history()) == (2, [], [])


class NoRequest(Exception):
    """A request that fails."""


@pytest.mark.parametrize("of_a_test_case", [False, True], ids=["alone", "in the transaction of a test"])
def test_tasks_that_were_rolled_back_were_not_enqueued(of_a_test_case: bool) -> None:
    with transaction.atomic() if of_a_test_case else nullcontext(), enqueued() as tasks:
        with suppress(NoRequest), transaction.atomic():
            add.enqueue(1, 1)
            with transaction.atomic():
                add.enqueue(2, 2)
            raise NoRequest
        with transaction.atomic():
            add.enqueue(3, 3)
            with suppress(NoRequest), transaction.atomic():
                add.enqueue(4, 4)
                raise NoRequest
        add.enqueue(5, 5)
        assert len(tasks) == 5, "until the end of the block, a transaction may go either way"
    assert [task.args for task in tasks] == [[3, 3], [5, 5]]


def test_tasks_that_have_run_were_enqueued() -> None:
    queue = backend().queue("default")
    with enqueued() as tasks:
        add.enqueue(1, 2)
        assert len(run_tasks()) == 1
        queue.purge_history(0)
    assert [task.args for task in tasks] == [[1, 2]]


def test_a_coroutine_collects_tasks() -> None:
    async def view() -> list[Any]:
        with enqueued() as tasks:
            await add.aenqueue(1, 2)
        return [task.args for task in tasks]

    assert async_to_sync(view)() == [[1, 2]]


def test_flush_empties_the_queues() -> None:
    add.enqueue(1, 2)
    call_command("flush", verbosity=0, interactive=False)
    assert backend().queue("default").peek() == []


def test_no_worker_runs_on_a_database_in_memory() -> None:
    with pytest.raises(ImproperlyConfigured, match="in memory"):
        call_command("tablequeue_worker", drain=True, verbosity=0)
    with pytest.raises(CommandError, match="has no queue 'other'"):
        call_command("tablequeue_worker", drain=True, queue=["other"], verbosity=0)


def login(*permissions: str) -> Client:
    user = User.objects.create(username="-".join(permissions) or "nobody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def shown(client: Client, path: str, **query: Any) -> str:
    response = client.get(path, query)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def test_the_admin_shows_tasks_and_retries_and_cancels() -> None:
    waiting, failed, done = add.enqueue(1, "<b>"), leave.enqueue(), add.using(queue_name="mail").enqueue(2, 3)
    queue = backend().queue("default")
    queue.cancel([int(add.enqueue(0, 0).id.split("-")[1])])
    (dead,) = [message for message in queue.peek() if message.payload["task"].endswith("leave")]
    run_tasks()
    waiting = add.enqueue(1, "<b>")
    client = login("view_task", "change_task")
    assert ">default</strong>" in shown(client, LIST), "the name in the settings"
    assert "<code>1, &quot;&lt;b&gt;&quot;</code>" in shown(client, LIST), "the arguments"
    page = shown(client, TASK.format(f"default_default/{waiting.id.split('-')[1]}"))
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "no exit of the worker" in shown(client, LIST, state="dead")
    assert "SystemExit" in shown(client, TASK.format(f"default_default/{dead.id}"))
    assert "<pre>5</pre>" in shown(client, TASK.format(f"default_mail/{done.id.split('-')[1]}"))
    assert "cancelled" in shown(client, LIST, state="history")

    assert client.post(f"{LIST}?queue=default_default&state=dead", {"id": [dead.id], "retry": "x"}).status_code == 302
    failed.refresh()
    assert failed.status == TaskResultStatus.READY
    answer = client.post(TASK.format(f"default_default/{dead.id}"), {"cancel": "x"}, follow=True)
    assert "1 tasks are cancelled" in answer.content.decode()
    failed.refresh()
    assert failed.status == TaskResultStatus.FAILED
    for path in (f"{LIST}?queue=other", f"{LIST}?state=other", f"{LIST}?from=x", TASK.format("default_mail/99")):
        assert client.get(path).status_code == 404, path
    assert client.post(LIST, {"id": ["1 or 1"], "cancel": "x"}).status_code == 404


def test_the_admin_finds_tasks_by_a_text_and_runs_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "PAGE", 2)
    for each in range(5):
        add.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1, f"number {each}")
    client = login("view_task", "change_task")
    queue = backend().queue("default")
    ids = [message.id for message in queue.peek(9, state="scheduled")]

    def found(**query: Any) -> list[int]:
        page = shown(client, LIST, state="scheduled", **query)
        return [*map(int, re.findall(r'name="id" value="(\d+)"', page))]

    assert found(q="NUMBER 3") == [ids[3]]
    assert found(q="other") == []
    pages, edge = [], 0
    while True:
        page = {"q": "number", "from": str(edge)}
        pages += found(**page)
        following = re.search(r"q=number&amp;from=(\d+)", shown(client, LIST, state="scheduled", **page))
        if following is None:
            break
        edge = int(following[1])
    assert pages == ids
    answer = client.post(f"{LIST}?state=scheduled", {"id": ids[:2], "now": "x"}, follow=True)
    assert "2 tasks are run" in answer.content.decode()
    assert [message.id for message in queue.peek()] == ids[:2]


def test_the_admin_keeps_to_permissions() -> None:
    add.enqueue(1, 2)
    (message,) = backend().queue("default").peek()
    viewer, nobody = login("view_task"), login()
    assert "checkbox" not in shown(viewer, LIST)
    for path in (LIST, TASK.format(f"default_default/{message.id}")):
        assert nobody.get(path).status_code == 403
        assert viewer.post(path, {"id": [message.id], "cancel": "x"}).status_code == 403
        assert Client().get(path).status_code == 302
    pages = [viewer.get(f"{LIST}{page}").status_code for page in ("add/", "1/delete/", "1/history/")]
    assert pages == [403, 403, 302], "the model has no table"
    assert backend().queue("default").peek() == [message]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, set()),
        ({"retry": True, "max_attempts": 9, "backoff": Backoff(base=2), "rate": Rate(5), "expires": 60}, set()),
        ({"dead_letter_to": "x"}, {"tablequeue.E002"}),
        ({"max_attempts": 0}, {"tablequeue.E003"}),
        ({"history": "none"}, {"tablequeue.E003"}),
        ({"retry": "yes"}, {"tablequeue.E003"}),
        ({"database": "other"}, {"tablequeue.E006"}),
    ],
    ids=str,
)
def test_checks_of_options(options: dict[str, Any], found: set[str]) -> None:
    assert identified({"default": {"BACKEND": PATH, "OPTIONS": options}}) == {"tablequeue.W001", *found} - (
        {"tablequeue.W001"} if "database" in options else set()
    )


def test_checks_of_settings() -> None:
    assert identified({"default": {"BACKEND": PATH, "QUEUES": []}}) == {"tablequeue.E004", "tablequeue.W001"}
    assert identified({"default": {"BACKEND": PATH, "QUEUES": ["a/b"]}}) == {"tablequeue.E003", "tablequeue.W001"}
    same = {"default": {"BACKEND": PATH, "QUEUES": ["a_b"]}, "default_a": {"BACKEND": PATH, "QUEUES": ["b"]}}
    assert "tablequeue.E005" in identified(same)
    with override_settings(INSTALLED_APPS=[]):
        assert "tablequeue.E001" in {message.id for message in backend().check()}


def identified(tasks: dict[str, Any]) -> set[str]:
    with override_settings(TASKS=tasks):
        return {message.id for message in backend().check()}


def test_urls_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker connects as Django does."""
    common = {"NAME": "shop", "USER": "me", "PASSWORD": "a@b/c", "HOST": "db", "PORT": "5433"}
    given = {
        "pg": {"ENGINE": "django.db.backends.postgresql", **common, "OPTIONS": {"sslmode": "require", "pool": True}},
        "service": {"ENGINE": "django.db.backends.postgresql", "NAME": "", "OPTIONS": {"service": "work"}},
        "my": {
            "ENGINE": "django.db.backends.mysql",
            **common,
            "HOST": "/run/my.sock",
            "PORT": "",
            "OPTIONS": {"charset": "utf8mb4", "ssl": {"ca": "ca.pem"}, "init_command": "set x = 1"},
        },
    }
    for alias, settings in given.items():
        monkeypatch.setitem(connections.databases, alias, settings)
    connections.configure_settings(connections.databases)
    shown = {alias: url_of(alias).render_as_string(hide_password=False) for alias in given}
    assert shown["pg"] == ("postgresql+psycopg://me:a%40b%2Fc@db:5433/shop?client_encoding=UTF8&sslmode=require")
    assert re.fullmatch(r"postgresql\+psycopg://\?client_encoding=UTF8&service=work", shown["service"])
    assert shown["my"] == (
        "mysql+pymysql://me:a%40b%2Fc@/shop?charset=utf8mb4&ssl_ca=ca.pem&unix_socket=%2Frun%2Fmy.sock"
    )
    for alias in given:
        del connections[alias]
