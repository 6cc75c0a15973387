"""How a test names its database to Spark, which shows the options of a source on its pages."""

from __future__ import annotations

from tablequeue.model.redaction import has_password
from tablequeue.spark.pipeline import Pipeline
from tests.servers import Place


def by_options(place: Place) -> dict[str, str]:
    """The options for the database of a place: its URL, or, if that has a password, the file with the URL."""
    named = {"urlFile": str(place.url_file)} if has_password(place.url) else {"url": place.url}
    return named | ({"schema": place.schema} if place.schema else {})


def pipeline(place: Place) -> Pipeline:
    """A pipeline in the database of a place."""
    if has_password(place.url):
        return Pipeline("test", url_file=str(place.url_file), schema=place.schema)
    return Pipeline("test", url=place.url, schema=place.schema)
