"""What Spark hides of its settings, by its own way of matching."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkConf

from tablequeue.spark.settings import REDACTION, hide_passwords

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
    settings = SparkConf(loadDefaults=False)
    try:
        if theirs:
            java.System.setProperty(REDACTION, theirs)  # as spark-submit does it with spark-defaults.conf
        hide_passwords(settings, java)
    finally:
        java.System.clearProperty(REDACTION)
    pattern = java.java.util.regex.Pattern.compile(settings.get(REDACTION))
    texts = {*hidden, "spark.a.token", "spark.a.MINE", "spark://host:7077", "postgresql://ada@host/db", "/a@b/c:d"}
    assert {text for text in texts if pattern.matcher(text).find()} == hidden
