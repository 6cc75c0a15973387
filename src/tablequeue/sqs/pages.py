"""Requests of web pages: without signatures, a page of any site could use the endpoint through its reader's browser."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from tablequeue.hosts import is_loopback
from tablequeue.sqs.errors import SqsError


def refuse_pages(method: str, headers: Mapping[str, str]) -> None:
    """Refuse a request of a page that is not of this machine. No SDK sends such headers."""
    origin = headers.get("origin")
    if origin is not None:
        here = _is_here(origin)
    else:
        # A browser sends no origin with GET. The page may have a host name that now has the address of this machine.
        site = headers.get("sec-fetch-site", "none")
        here = method != "GET" or (site in ("none", "same-origin") and _is_here(f"//{headers.get('host', '')}"))
    if not here:
        raise SqsError("AccessDenied", "The request is of a web page. Run the endpoint with credentials, and sign it.")


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return is_loopback(host) or host.endswith(".localhost")  # as sqs.us-east-1.localhost, which is no name of DNS
