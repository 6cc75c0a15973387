"""Access control: the Host header, the token and its sessions, the origin of requests, and the security headers."""

from __future__ import annotations

import secrets
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tablequeue.http.hosts import is_loopback

COOKIE = "tablequeue"
# Paths that need no token. The health checks answer only two or three words.
OPEN = ("/login", "/static/", "/healthz", "/readyz")
# Bytes of a form: enough for a thousand ids. A form is read before its sender is authenticated.
LARGEST_FORM = 1 << 16
# Cookies that are valid at the same time; one more makes the oldest invalid.
MOST_SESSIONS = 1000

HEADERS = {
    # No external and no inline resources: even a payload that got into a page as HTML could do no harm.
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not no-referrer: the origin of our own forms would then be null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Session:
    """The secrets of one run: its token, the cookies of visitors who are logged in, and the hidden field of every form.

    All users share that field. All who have the token have the same rights, and nobody else sees a page with it.
    """

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.csrf = secrets.token_urlsafe(32)
        self._cookies: dict[bytes, None] = {}
        """Hashes, so that the time of a look-up reveals nothing about a cookie; the oldest one first."""

    def opens(self, token: str) -> bool:
        return self.token is not None and _same(token, self.token)

    def begin(self) -> str:
        """Log somebody in; return the value of the cookie."""
        cookie = secrets.token_urlsafe(32)
        self._cookies[_hashed(cookie)] = None
        if len(self._cookies) > MOST_SESSIONS:
            del self._cookies[next(iter(self._cookies))]
        return cookie

    def end(self, request: Request) -> None:
        """Log the sender out: the cookie is invalid from now on, whoever has it."""
        self._cookies.pop(_hashed(request.cookies.get(COOKIE, "")), None)

    def admits(self, request: Request) -> bool:
        if self.token is None or _hashed(request.cookies.get(COOKIE, "")) in self._cookies:
            return True
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.opens(bearer.strip())

    def wrote(self, value: object) -> bool:
        """Whether a form came from one of our pages."""
        return isinstance(value, str) and _same(value, self.csrf)


def _hashed(cookie: str) -> bytes:
    return sha256(cookie.encode("utf-8", "surrogateescape")).digest()


def _same(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """Middleware that refuses requests without access, and adds HEADERS to every response."""

    def __init__(self, app: ASGIApp, session: Session, loopback: bool, public_url: str | None) -> None:
        self.app = app
        self.session = session
        self.loopback = loopback
        self.public_url = public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._answer(Request(scope)) or self.app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """Return a refusal, or a redirection to the login; None if the request is allowed."""
        host = request.headers.get("host", "")
        # DNS rebinding: a web page may let its own name point to 127.0.0.1, to read the pages. Its requests have
        # that name as Host.
        name = _host_of(host)
        if self.loopback and not is_loopback(name) and name != urlsplit(self.public_url or "").hostname:
            words = "This dashboard can be reached only by the names of its own machine, and by its --public-url."
            return PlainTextResponse(words, 421)
        if self._is_of_elsewhere(request, host):
            return PlainTextResponse("The request was sent by another site.", 403)
        length = request.headers.get("content-length", "")
        if request.method == "POST" and not (length.isdecimal() and len(length) < 9 and int(length) <= LARGEST_FORM):
            return PlainTextResponse("The form is too large.", 413)
        path = request.scope["path"]
        if path.startswith(OPEN) or self.session.admits(request):
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            there = quote(f"{quote(path)}?{request.url.query}" if request.url.query else quote(path))
            return RedirectResponse(f"/login?next={there}", 303)
        return PlainTextResponse("Give the token as Authorization: Bearer.", 401, {"www-authenticate": "Bearer"})

    def _is_of_elsewhere(self, request: Request, host: str) -> bool:
        """Whether a page of another site sent the request. A link there may lead here."""
        origin = request.headers.get("origin")
        if request.method != "GET" and origin is not None:
            return origin != self.public_url and urlsplit(origin).netloc != host
        # Without this a page of any site could start searches through its reader's browser.
        site, use = (request.headers.get(f"sec-fetch-{name}", "none") for name in ("site", "dest"))
        return site in ("cross-site", "same-site") and use != "document"
