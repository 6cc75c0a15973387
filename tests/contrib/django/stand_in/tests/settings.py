"""The settings of the tests: a file of SQLite, or the server of the variable URL."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

try:
    import MySQLdb  # noqa: F401
except ImportError:
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks for
    pymysql.install_as_MySQLdb()

try:
    import django.tasks  # noqa: F401

    OWN = []
except ImportError:
    OWN = ["django_tasks"]

SECRET_KEY = "tests"
USE_TZ = True
url = urlsplit(os.environ["URL"])
if url.scheme:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends." + ("postgresql" if "postgresql" in url.scheme else "mysql"),
            "NAME": url.path[1:],
            "USER": url.username,
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname,
            "PORT": url.port,
            "TEST": {"NAME": "tablequeue_django_others"},
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(os.environ["PLACE"], "work.db"),
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
            "TEST": {"NAME": Path(os.environ["PLACE"], "test.db")},
        }
    }
INSTALLED_APPS = [
    *OWN,
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "tablequeue.contrib.django",
    "django_tasks_db",
]
TASKS = {"default": {"BACKEND": "tablequeue.contrib.django.Backend", "QUEUES": ["default", "queue-1"]}}
TEST_RUNNER = "tests.running.Runner"
