"""URLs for those who take no schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from tests import mssql
from tests.servers import Place


@contextmanager
def url_of(place: Place) -> Iterator[str]:
    """Yield a URL of the place's own schema; on SQL Server, whose URLs name none, of a database of its own."""
    url = sa.make_url(place.url)
    if url.get_backend_name() == "mssql":
        with mssql.database() as own:
            yield own
        return
    if place.schema:
        place.execute(f"create schema if not exists {place.schema}")
        if url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"options": f"-csearch_path={place.schema}"})
        else:
            url = url.set(database=place.schema)
    yield url.render_as_string(hide_password=False)
