"""Checks of webhook addresses (SSRF): only public ones, unless the settings allow private ones."""

import ipaddress
import socket
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from deferkit.errors import InvalidArgument

LONGEST_URL = 2000
NAT64 = ipaddress.ip_network("64:ff9b::/96")
GLOBAL_UNICAST_6 = ipaddress.ip_network("2000::/3")  # all that has been given out of IPv6 for public hosts
# The IANA special-purpose address registries, with what is multicast or reserved. `is_global` of the standard library
# knows another part of them in each version of Python. Also excluded are entries that are globally reachable: they are
# anycast to the nearest gateway, relay or sink (192.0.0.9 is that of a NAT), and no receiver of webhooks.
SPECIAL_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast relays (AMT)
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
SPECIAL_6 = tuple(  # within 2000::/3; everything outside that is excluded anyway
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # IETF protocol assignments: Teredo, ORCHID, benchmarks, AMT, AS112
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, deprecated: contains an IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # 6bone, returned
        "3fff::/20",  # documentation
    )
)
NOT_PUBLIC = "a private, loopback, link-local, multicast or reserved address"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Destination(NamedTuple):
    """The parts of a webhook's URL."""

    host: str
    port: int
    path: str  # with its query
    secure: bool

    @property
    def host_header(self) -> str:
        """What the header `host` says: without the port of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def destination_of(url: str, *, private: bool) -> Destination:
    """Return where a webhook's URL leads; raise if it may not be one.

    Parameters
    ----------
    url
        http or https, without credentials and fragment.
    private
        Whether addresses that are not public are allowed. A name is not looked up here: that is done before each
        connection.

    The error does not repeat the URL, which may be a secret itself.

    >>> destination_of("https://example.org/hook?a=1", private=False)
    Destination(host='example.org', port=443, path='/hook?a=1', secure=True)
    >>> destination_of("http://0x7f.1/", private=False)
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The url leads to a private, loopback, link-local, multicast or reserved address.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or len(url) > LONGEST_URL:
        raise InvalidArgument(f"The url has at most {LONGEST_URL:,} printable ASCII characters, without spaces and \\.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port  # a final dot is the root of all names
    except ValueError:
        raise InvalidArgument("The url is not one.") from None
    if parts.scheme not in ("http", "https") or not host or host.endswith("."):
        raise InvalidArgument("The url begins with http:// or https:// and a host.")
    if "@" in parts.netloc or "#" in url or "%" in host or port == 0:
        raise InvalidArgument("The url has no credentials, fragment or zone.")
    address = literal_address(host)
    local = host == "localhost" or host.endswith(".localhost")
    if not private and (local or (address is not None and not is_public(address))):
        raise InvalidArgument(f"The url leads to {NOT_PUBLIC}.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    secure = parts.scheme == "https"
    return Destination(host, port or (443 if secure else 80), path, secure)


def literal_address(host: str) -> Address | None:
    """Return the address that a host is, in any form that a resolver takes; None if it is a name.

    >>> [str(literal_address(host)) for host in ("::1", "127.1", "2130706433", "0177.0.0.1", "example.org")]
    ['::1', '127.0.0.1', '127.0.0.1', '127.0.0.1', 'None']
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def is_public(address: Address) -> bool:
    """Return whether an address is ordinary public unicast; for one that contains an IPv4 address, whether that is.

    >>> [is_public(ipaddress.ip_address(each)) for each in ("1.1.1.1", "10.0.0.1", "::ffff:127.0.0.1", "3fff::1")]
    [True, False, False, False]
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in SPECIAL_4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in NAT64:
        return is_public(ipaddress.IPv4Address(address.packed[-4:]))
    return address in GLOBAL_UNICAST_6 and not any(address in network for network in SPECIAL_6)


def allowed(addresses: Iterable[str], *, private: bool) -> list[str]:
    """Return those of a name's addresses that a webhook may be connected to.

    >>> allowed(["10.0.0.1", "1.1.1.1"], private=False)
    ['1.1.1.1']
    """
    return [each for each in addresses if private or is_public(ipaddress.ip_address(each))]
