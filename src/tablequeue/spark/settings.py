"""Hides passwords in the settings of a session, which Spark shows on its pages, by REST and in event logs."""

from __future__ import annotations

from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession

from tablequeue.model.redaction import PASSWORD, has_password

REDACTION = "spark.redaction.regex"


def hide_passwords(settings: SparkConf, java: Any) -> None:
    """Let Spark also hide each setting whose value has a URL with a password.

    Call it before the session begins. The pattern of Spark, or of its spark-defaults.conf, remains in force.
    """
    defaults = SparkConf(_jvm=java)  # also those of the file, which only Java has read
    settings.set(REDACTION, f"(?:{_pattern(defaults, java)})|{PASSWORD}")


def exposed_passwords(spark: SparkSession) -> list[str]:
    """Return the names of the session's settings that have a URL with a password and that Spark does not hide."""
    java = spark.sparkContext._jvm
    settings = spark.sparkContext.getConf()
    hidden = java.java.util.regex.Pattern.compile(_pattern(settings, java))
    return sorted(
        name
        for name, value in settings.getAll()
        if has_password(value) and not any(hidden.matcher(text).find() for text in (name, value))
    )


def _pattern(settings: SparkConf, java: Any) -> str:
    config = getattr(java.org.apache.spark.internal.config, "package$")
    return settings._jconf.get(getattr(config, "MODULE$").SECRET_REDACTION_PATTERN()).toString()
