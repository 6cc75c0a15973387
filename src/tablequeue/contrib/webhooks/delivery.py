"""The handler that delivers messages to public addresses, with the signatures of Standard Webhooks."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import IPPROTO_TCP, create_connection, getaddrinfo
from urllib.parse import urlsplit

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from tablequeue.errors import BadInput
from tablequeue.model.message import Claim
from tablequeue.worker import DeadLetter, Done, Outcome, Retry

SCHEMES = {"http": 80, "https": 443}
GONE = 410
_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_WAIT = 86400.0
SHOWN = 200
"""How many bytes of an answer, and of the reason beside its status, are kept as the error of an attempt."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The receiver of messages.

    url       of http or https.
    secrets   the secrets of the signatures, `whsec_…`; several while a secret is replaced, each with a signature.
    """

    url: str
    secrets: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            if parts.scheme not in SCHEMES or not parts.hostname or parts.port == 0 or parts.username is not None:
                raise ValueError
        except ValueError:
            raise BadInput(
                "The URL of an endpoint is wrong.", "Give a URL with http or https, without a user."
            ) from None
        try:
            if isinstance(self.secrets, str) or not [Webhook(secret) for secret in self.secrets]:
                raise ValueError
        except (ValueError, TypeError, EmptyWebhookSecretError):
            raise BadInput("The secrets of an endpoint are wrong.", "Give ['whsec_…'], in base64.") from None


class Webhooks:
    """A handler of a worker: it posts the payload of a message as JSON, and returns the outcome.

    endpoint   an `Endpoint`, or a function that returns one for a message; None: the message no longer has a receiver,
               and is completed.
    timeout    seconds for the connection, and for each read of the answer.
    private    whether endpoints may be in private networks, or on this machine.

    A message is delivered at least once: if the worker is killed after the answer, it is sent again, with the same
    `webhook-id`. An answer of 2xx completes it, 410 makes it a dead letter, and any other failure is retried by the
    queue's backoff, or after the time in `Retry-After` (a day at most).
    """

    def __init__(
        self, endpoint: Endpoint | Callable[[Claim], Endpoint | None], *, timeout: float = 15, private: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._private = private
        self._tls = ssl.create_default_context()

    def __call__(self, message: Claim) -> Outcome:
        endpoint = self._endpoint if isinstance(self._endpoint, Endpoint) else self._endpoint(message)
        if endpoint is None:
            return Done()
        body = json.dumps(message.payload, ensure_ascii=False, separators=(",", ":"))
        if _SURROGATE.search(body):  # a lone one: it can only be escaped
            body = json.dumps(message.payload, separators=(",", ":"))
        try:
            return self._post(endpoint.url, body.encode(), signed(message, body, endpoint.secrets))
        except BadInput as error:
            return DeadLetter(str(error))
        except (OSError, HTTPException) as error:
            return Retry(error=f"{type(error).__name__}: {str(error)[:SHOWN]}")

    def _post(self, url: str, body: bytes, headers: dict[str, str]) -> Outcome:
        parts = urlsplit(url)
        tls = self._tls if parts.scheme == "https" else None
        port = parts.port or SCHEMES[parts.scheme]
        connection = Connection(parts.hostname or "", port, self._timeout, self._private, tls)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, headers)
            return outcome_of(connection.getresponse())
        finally:
            connection.close()


def signed(message: Claim, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of a delivery. The id is the same at each attempt, the time is not."""
    id = str(message.headers.get("webhook-id", f"msg_{message.pushed_at:%Y%m%dT%H%M%S%f}_{message.id}"))
    now = datetime.now(UTC)
    return {
        "content-type": "application/json",
        "user-agent": "tablequeue",
        "webhook-id": id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(id, now, body) for secret in secrets),
    }


def outcome_of(response: HTTPResponse) -> Outcome:
    if 200 <= response.status < 300:
        return Done()
    error = f"HTTP {response.status} {response.reason[:SHOWN]}: {response.read(SHOWN).decode(errors='replace')}"
    if response.status == GONE:
        return DeadLetter(error)
    return Retry(after=retry_after(response.headers.get("retry-after")), error=error)


def retry_after(value: str | None) -> float | None:
    """Return the seconds in a `Retry-After`, a day at most; None if it has none, or cannot be read."""
    if value is None:
        return None
    try:
        now = datetime.now(UTC)
        seconds = float(value) if value.isdecimal() else (parsedate_to_datetime(value) - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # a date without a zone is not valid in HTTP
        return None
    return min(seconds, LONGEST_WAIT) if seconds > 0 else None


# Addresses that Python does not know as reserved: in 2000::/3 are all public addresses of IPv6, and some versions leave
# out the address of the metadata in Oracle's cloud. The last one is the wire server of Azure, which gives a machine its
# configuration: its number is a public address, but only that machine reaches it.
UNICAST = ip_network("2000::/3")
NAT64 = ip_network("64:ff9b::/96")
RESERVED = (ip_network("192.0.0.0/24"), ip_network("3fff::/20"), ip_network("168.63.129.16/32"))


class Connection(HTTPConnection):
    """A connection to an address that was checked after its name was resolved. It follows no redirect and no proxy.

    private   whether addresses of private networks and of this machine are allowed.
    tls       the context that verifies the certificate; None: plain HTTP.
    """

    def __init__(self, host: str, port: int, timeout: float, private: bool, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout)
        self.default_port = 443 if tls else 80  # which the header `host` leaves out
        self._private = private
        self._tls = tls

    def connect(self) -> None:
        """Connect to the first address that answers; `BadInput` if one of them is private."""
        found = [str(address[0]) for *_, address in getaddrinfo(self.host, self.port, proto=IPPROTO_TCP)]
        if not self._private and not all(map(is_public, found)):
            raise BadInput(f"{self.host} is in a private network.", "If it is your own, allow it by private=True.")
        for address in found:
            try:
                sock = create_connection((address, self.port), self.timeout)
                self.sock = self._tls.wrap_socket(sock, server_hostname=self.host) if self._tls else sock
                return
            except OSError as error:
                refused = error
        raise refused


def is_public(address: str) -> bool:
    """Return whether the address is public."""
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        if parsed in NAT64:
            parsed = IPv4Address(parsed.packed[-4:])
        else:
            parsed = parsed.ipv4_mapped or parsed.sixtofour or parsed
    if any(parsed in network for network in RESERVED) or (parsed.version == 6 and parsed not in UNICAST):
        return False
    return parsed.is_global and not parsed.is_multicast
