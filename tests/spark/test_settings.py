"""What Spark hides of its settings, by its own way of matching; and what Java has."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkConf

from tablequeue.spark import settings
from tablequeue.spark.settings import REDACTION, exposed_passwords, hide_passwords

URL = "postgresql+psycopg://ada:s3cret@host/db"


@pytest.mark.parametrize(
    ("theirs", "hidden"),
    [
        (None, {"spark.a.token", URL, f"java --conf a.b={URL}", "postgresql://host/db?passwd=s3cret"}),
        ("(?i)mine", {"spark.a.MINE", URL, f"java --conf a.b={URL}", "postgresql://host/db?passwd=s3cret"}),
    ],
)
def test_passwords_are_hidden_besides_what_was_hidden_before(spark: Any, theirs: str | None, hidden: set[str]) -> None:
    java = spark.sparkContext._jvm
    conf = SparkConf(loadDefaults=False)
    try:
        if theirs:
            java.System.setProperty(REDACTION, theirs)  # as spark-submit does it with spark-defaults.conf
        hide_passwords(conf, java)
    finally:
        java.System.clearProperty(REDACTION)
    pattern = java.java.util.regex.Pattern.compile(conf.get(REDACTION))
    texts = {*hidden, "spark.a.token", "spark.a.MINE", "spark://host:7077", "postgresql://ada@host/db", "/a@b/c:d"}
    assert {text for text in texts if pattern.matcher(text).find()} == hidden


def test_a_setting_that_shows_a_password_is_found(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of these tests hides it, as tablequeue makes them; one of others has no pattern for that."""
    session = spark.newSession()
    session.conf.set("spark.mine", URL)
    assert exposed_passwords(session) == []
    monkeypatch.setattr(settings, "REDACTION", "spark.no.pattern")
    assert exposed_passwords(session) == ["spark.mine"]


def test_a_quick_session_has_room_for_the_code_of_many_queries(spark: Any) -> None:
    """As much as one with both compilers: with a fifth of it, a session ended after some hundreds of queries."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = [pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code")]
    assert sum(code) >= 240 << 20
