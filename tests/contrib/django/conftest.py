"""Django in the process of the tests: `site` adds the database of a test to its settings, and makes the tables."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import django
import pytest
import sqlalchemy as sa
from django.conf import settings

from tests.servers import KINDS, Kind, Place

try:
    import MySQLdb  # noqa: F401
except ImportError:
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks for
    pymysql.install_as_MySQLdb()

BACKENDS = {"sqlite": "sqlite3", "postgresql": "postgresql", "mariadb": "mysql"}
OWN = ["django_tasks"] if django.VERSION < (6, 0) else []

if not settings.configured:
    settings.configure(
        SECRET_KEY="tests",
        USE_TZ=True,
        TIME_ZONE="UTC",
        ROOT_URLCONF="tests.contrib.django.urls",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            *OWN,
            *(f"django.contrib.{app}" for app in ("contenttypes", "auth", "sessions", "messages", "admin")),
            "tablequeue.contrib.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        TASKS={"default": {"BACKEND": "tablequeue.contrib.django.Backend", "QUEUES": ["default", "mail"]}},
    )
    django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.test.utils import override_settings  # noqa: E402


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The command of the worker sets the levels of loggers; the tests after it need their own."""
    loggers = [logging.getLogger(name) for name in ("tablequeue", "django.tasks", "django_tasks")]
    before = [log.level for log in loggers]
    yield
    for log, level in zip(loggers, before, strict=True):
        log.setLevel(level)


@pytest.fixture(params=[kind for kind in KINDS if kind.name in BACKENDS], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


class Site:
    """A database in the settings of Django, and backends of TASKS on it."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @contextmanager
    def tasks(self, queues: tuple[str, ...] = ("default", "mail"), **options: Any) -> Iterator[None]:
        """Have a backend with these queues and options, and their tables."""
        backend = {
            "BACKEND": "tablequeue.contrib.django.Backend",
            "QUEUES": list(queues),
            "OPTIONS": {"database": self.alias, **options},
        }
        with override_settings(TASKS={"default": backend}):
            call_command("migrate", "tablequeue", database=self.alias, verbosity=0)
            yield

    def work(self, **options: Any) -> None:
        """Run a worker until nothing is ready."""
        call_command("tablequeue_worker", drain=True, verbosity=0, **options)


@pytest.fixture
def site(place: Place, kind: Kind) -> Iterator[Site]:
    url = sa.make_url(place.url)
    if place.schema:
        place.execute(f"create schema {place.schema}")
    options: Mapping[str, Any] = {
        "sqlite": {"transaction_mode": "IMMEDIATE"},
        "postgresql": {"options": f"-c search_path={place.schema}"},
        "mariadb": {"charset": "utf8mb4"},
    }[kind.name]
    alias = f"tested_{secrets.token_hex(4)}"  # threads of asgiref keep connections by their alias
    connections.databases[alias] = {
        "ENGINE": f"django.db.backends.{BACKENDS[kind.name]}",
        "NAME": place.schema if kind.name == "mariadb" else url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
        "OPTIONS": dict(options),
    }
    connections.configure_settings(connections.databases)  # the defaults of the others
    yield Site(alias)
    connections[alias].close()
    del connections[alias], connections.databases[alias]


@pytest.fixture
def memory() -> Iterator[None]:
    """The default database, which is in memory, with all tables."""
    call_command("migrate", verbosity=0)
    yield
    call_command("flush", verbosity=0, interactive=False)
