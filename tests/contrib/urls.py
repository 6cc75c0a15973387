"""URLs for those who take no schema."""

from __future__ import annotations

import sqlalchemy as sa

from tests.servers import Place


def url_of(place: Place) -> str:
    """Return a URL of the place's own schema."""
    url = sa.make_url(place.url)
    if place.schema:
        place.execute(f"create schema if not exists {place.schema}")
        if url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"options": f"-csearch_path={place.schema}"})
        else:
            url = url.set(database=place.schema)
    return url.render_as_string(hide_password=False)
