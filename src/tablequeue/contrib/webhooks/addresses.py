"""Connections to public addresses only, so that an endpoint cannot reach what only this machine can reach."""

from __future__ import annotations

import ssl
from http.client import HTTPConnection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import IPPROTO_TCP, create_connection, getaddrinfo

from tablequeue.errors import BadInput

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
