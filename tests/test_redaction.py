"""Secrets in a URL are found, whatever the URL looks like."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from tablequeue.model.redaction import has_password

pytestmark = pytest.mark.quick

# Characters of passwords and user names, which SQLAlchemy escapes so that they can be parsed again.
words = st.text(st.characters(exclude_categories=["Cs"]))


@given(words, words, st.sampled_from(["postgresql+psycopg", "mariadb+pymysql", "mssql+pyodbc", "sqlite"]))
def test_every_url_with_a_password(user: str, password: str, driver: str) -> None:
    url = sa.URL.create(driver, user or "ada", password, "host", 5432, "db").render_as_string(hide_password=False)
    assert sa.make_url(url).password is not None
    assert has_password(url)
    assert has_password(f"--conf a.b={url} --conf c=d")


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("sqlite:////home/a@b/work.db", False),
        ("sqlite:////home/password/work.db", False),
        ("postgresql://ada@host:5432/db", False),
        ("postgresql://ada@host/db?sslmode=require&passfile=/home/ada/.pgpass", False),
        ("spark://127.0.0.1:7077", False),
        ("spark://CoarseGrainedScheduler@127.0.0.1:40291", False),
        ("/run/secrets/url", False),
        ("TABLEQUEUE_URL", False),
        ("2026-11-21T08:00:00+00:00", False),
        ("jdbc:postgresql://ada:s3cret@host/db", True),
        ("postgresql://ada:@host/db", True),
        ("postgresql://ada:s3 cret/:?#@host/db", True),
        ("postgresql://host/db?user=ada&password=s3cret", True),
        ("postgresql://host/db?sslpassword=s3cret", True),
        ("mariadb+pymysql://host/db?passwd=s3cret", True),
        ("mssql+pyodbc://host/db?PWD=s3cret", True),
        ("mssql+pyodbc:///?odbc_connect=Server%3Dhost%3BPWD%3Ds3cret", True),
    ],
)
def test_what_has_a_password(url: str, secret: bool) -> None:
    assert has_password(url) is secret
