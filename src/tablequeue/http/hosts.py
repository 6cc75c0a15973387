"""Names of hosts."""

from __future__ import annotations

import ipaddress

# Names that no public DNS has. A page of a site cannot be reached by one, so it cannot be the host of a request.
_PRIVATE = (".localhost", ".local", ".internal", ".svc", ".home.arpa")
# The names of LocalStack, which are all 127.0.0.1.
_LOCALSTACK = "localhost.localstack.cloud"


def is_here(host: str) -> bool:
    """Whether a host can only be this machine: a loopback address, `localhost`, `sqs.us-east-1.localhost`."""
    return is_loopback(host) or host.endswith((".localhost", f".{_LOCALSTACK}")) or host == _LOCALSTACK


def is_private(host: str) -> bool:
    """Whether a host can only be of a private network: an address, or a name that is none of the public DNS."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(_PRIVATE)
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
