"""Names of hosts."""

from __future__ import annotations

import ipaddress

# Names that no public DNS has. No web site has such a name, so a page of a site cannot send a request with it as the
# host.
_PRIVATE = (".localhost", ".local", ".internal", ".svc", ".home.arpa", ".lan", ".test")
# The names of LocalStack, which are all 127.0.0.1.
_LOCALSTACK = "localhost.localstack.cloud"


def is_here(host: str) -> bool:
    """Whether a host can only be this machine: a loopback address, `localhost`, `sqs.us-east-1.localhost`."""
    return is_loopback(host) or host.endswith((".localhost", f".{_LOCALSTACK}")) or host == _LOCALSTACK


def is_private(host: str) -> bool:
    """Whether a host can only be in a private network: an address, or a name that the public DNS does not have."""
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
