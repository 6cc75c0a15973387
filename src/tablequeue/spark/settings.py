"""Hides passwords in the settings of a session, which Spark shows on its pages, by REST and in event logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tablequeue.model.redaction import PASSWORD, has_password

if TYPE_CHECKING:
    from pyspark import SparkConf

REDACTION = "spark.redaction.regex"
# The setting of a session that names the file of its log.
LOG = "tablequeue.log"
# What Spark hides if that is not set.
DEFAULT = "(?i)secret|password|token|access[.]?key|credential"


def hide_passwords(settings: SparkConf, java: Any) -> None:
    """Let Spark also hide each setting with a URL that has a password.

    Call it before the session begins. The pattern of Spark, or of its spark-defaults.conf, remains in force.
    """
    from pyspark import SparkConf  # which a client of Spark Connect may lack

    defaults = SparkConf(_jvm=java)  # also the settings of the file, which only Java has read
    settings.set(REDACTION, f"(?:{_pattern(defaults, java)})|{PASSWORD}")


def exposed_passwords(spark: SparkSession) -> list[str]:
    """Return the names of the session's settings that have a URL with a password and that Spark does not hide."""
    hidden = spark.conf.get(REDACTION, None) or DEFAULT
    return sorted(
        name for name, value in spark.conf.getAll.items() if has_password(value) and not _hides(hidden, name, value)
    )


def _hides(pattern: str, name: str, value: str) -> bool:
    """Whether a pattern hides a setting. It is one for Java: if Python cannot read it, nothing counts as hidden."""
    try:
        # Python has no flags in the middle of a pattern, but for a group it has.
        found = re.compile(pattern.replace("(?:(?i)", "(?i:"))
    except re.error:
        return False
    return any(found.search(text) for text in (name, value))


def _pattern(settings: SparkConf, java: Any) -> str:
    config = getattr(java.org.apache.spark.internal.config, "package$")
    return settings._jconf.get(getattr(config, "MODULE$").SECRET_REDACTION_PATTERN()).toString()
