"""Checks of webhook addresses (SSRF): only public ones, unless the settings allow private ones."""

import ipaddress
import socket
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from deferkit.errors import InvalidArgument

LONGEST_URL = 2000
NAT64 = ipaddress.ip_network("64:ff9b::/96")
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
        Whether private, loopback and link-local addresses are allowed. A name is not looked up here: that is done
        before each connection.

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
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidArgument("The url is not one.") from None
    if parts.scheme not in ("http", "https") or not host:
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
    """Return whether an address can be reached from everywhere; for one that contains another, whether that can too.

    >>> [is_public(ipaddress.ip_address(each)) for each in ("1.1.1.1", "10.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::")]
    [True, False, False, False]
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or address.teredo is not None:
            return False
        if address in NAT64:
            return is_public(ipaddress.IPv4Address(address.packed[-4:]))
        if address.sixtofour is not None and not is_public(address.sixtofour):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def allowed(addresses: Iterable[str], *, private: bool) -> list[str]:
    """Return those of a name's addresses that a webhook may be connected to.

    >>> allowed(["10.0.0.1", "1.1.1.1"], private=False)
    ['1.1.1.1']
    """
    return [each for each in addresses if private or is_public(ipaddress.ip_address(each))]
