"""Requests of web pages: without signatures, a page of any site could use the endpoint through its reader's browser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from tablequeue.http.hosts import is_here, is_private
from tablequeue.sqs.errors import SqsError
from tablequeue.sqs.urls import REMEMBERED


def refuse_pages(headers: Mapping[str, str]) -> None:
    """Refuse a request of a page that is not of this machine, whatever its method."""
    # The page may have a host name that now has the address of this machine.
    if not _is_here(f"//{headers.get('host', '')}"):
        raise SqsError(
            "AccessDenied",
            "The request names a host that is not this machine. Call localhost, or run the endpoint with credentials.",
        )
    origin = headers.get("origin")
    # A browser sends no origin with GET. A page of this machine may be of another site: localhost:3000 and 127.0.0.1.
    site = headers.get("sec-fetch-site", "none") if origin is None else "none"
    if site not in ("none", "same-origin") or (origin is not None and not _is_here(origin)):
        raise SqsError("AccessDenied", "The request is of a web page. Run the endpoint with credentials, and sign it.")


def refuse_pages_of_network(method: str, headers: Mapping[str, str]) -> None:
    """Refuse a request that may be of a web page, if every client of a private network may use the endpoint.

    A page can send a GET without any sign of its origin to an address of the network, or to its own host name with such
    an address. Any POST of a page has an origin. SDKs send POST without one.
    """
    if _is_here(f"//{headers.get('host', '')}"):
        refuse_pages(headers)
    elif not is_private(_host(f"//{headers.get('host', '')}")):
        raise SqsError(
            "AccessDenied",
            "The request names a host of the public DNS. Run the endpoint with credentials, and sign it.",
        )
    elif method != "POST" or not {"origin", "sec-fetch-site"}.isdisjoint(headers):
        raise SqsError("AccessDenied", "The request may be of a web page. Send a POST, without Origin.")


def _is_here(url: str) -> bool:
    return _known(url) if len(url) <= REMEMBERED else is_here(_host(url))


@lru_cache(maxsize=1000)
def _known(url: str) -> bool:
    return is_here(_host(url))


def _host(url: str) -> str:
    """Return the host of a URL; "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
