"""Where webhooks may go: literal addresses in all their forms, and names by what they mean at the delivery."""

import ipaddress
import socket

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.webhook import destination_of, is_public, literal_address, permitted_addresses

LOCAL = [
    "127.0.0.1",
    "127.255.255.254",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "10.0.0.1",
    "10.1",
    "167772161",  # 10.0.0.1
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "192.168.257",
    "3232235777",  # 192.168.1.1
    "169.254.169.254",
    "0xa9fea9fe",  # 169.254.169.254
    "100.64.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[fe80::1]",
    "[fc00::1]",
    "[fd12:3456::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a00:1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2001:0:7f00:1::]",
    "192.0.0.8",
    "192.88.99.1",
    "[3fff::1]",
    "localhost",
    "LOCALHOST",
    "a.localhost",
]
EXCLUDED = [  # the IANA special-purpose registries, multicast, reserved, and IPv6 that is not given out
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
    *("::/128", "::1/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23"),
    *("2001::/32", "2001:2::/48", "2001:3::/32", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32"),
    *("2002::/16", "2002:a00::/24", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20", "4000::/3", "5f00::/16"),
    *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "134744072", "[2606:4700:4700::1111]", "[::ffff:1.1.1.1]", "example.org", "mylocalhost"]
NOT_URLS = [
    "",
    "example.org",
    "//example.org/",
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://example.org:70/_x",
    "javascript:alert(1)",
    "http://",
    "http://./",
    "http://localhost../",
    "http:///path",
    "http://user@example.org/",
    "http://user:password@example.org/",
    "http://:password@example.org/",
    "http://@example.org/",
    "http://example.org@1.1.1.1/",
    "http://example.org/#fragment",
    "http://example.org/#",
    "http://example.org:0/",
    "http://example.org:99999/",
    "http://example.org:x/",
    "http://[::1",
    "http://[fe80::1%25eth0]/",
    "http://exa mple.org/",
    "http://example.org/a\nb",
    "http://example.org/\r\nx-header: 1",
    "http://example.org\\@127.0.0.1/",
    "http://exämple.org/",
    "http://１２７.0.0.1/",
    "http://127%2e0.0.1/",
    "http://example.org/" + "a" * 2000,
]


@pytest.mark.parametrize("host", LOCAL)
def test_an_address_of_ours_is_refused_in_every_form(host: str) -> None:
    for url in (f"http://{host}/", f"https://{host}:8443/hook", f"http://{host}./", f"http://{host}.:8080/"):
        with pytest.raises(InvalidArgument, match=r"private, loopback, link-local, multicast or reserved"):
            destination_of(url, private=False)
        assert destination_of(url, private=True).host == host.strip("[]").lower()


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_address_or_a_name_is_taken(host: str) -> None:
    assert destination_of(f"https://{host}/", private=False).host == host.strip("[]").lower()


@pytest.mark.parametrize("url", NOT_URLS)
def test_what_is_no_url_of_a_webhook_is_refused_and_not_repeated(url: str) -> None:
    for private in (False, True):
        with pytest.raises(InvalidArgument) as caught:
            destination_of(url, private=private)
        assert len(url) < 8 or url not in str(caught.value)


def test_the_parts_of_a_url() -> None:
    assert destination_of("http://example.org", private=False) == ("example.org", 80, "/", False)
    assert destination_of("HTTPS://Example.org:444/a/b?c=d&e", private=False) == (
        "example.org",
        444,
        "/a/b?c=d&e",
        True,
    )
    assert destination_of("https://example.org./a", private=False) == ("example.org", 443, "/a", True)
    assert destination_of("https://[2606:4700::1]?q", private=False) == ("2606:4700::1", 443, "/?q", True)


@pytest.mark.parametrize("host", [host for host in LOCAL if host[0].isdigit()])
def test_the_system_reads_a_host_as_we_do(host: str) -> None:
    """What a connection would be made to is what was looked at."""
    found = {address[0] for *_, address in socket.getaddrinfo(host, 80, family=socket.AF_INET)}
    assert found == {str(literal_address(host))}


@pytest.mark.parametrize("network", EXCLUDED)
def test_the_first_and_the_last_address_of_an_excluded_network_are_not_public(network: str) -> None:
    block = ipaddress.ip_network(network)
    for address in (block[0], block[-1]):
        assert not is_public(address)
        if isinstance(address, ipaddress.IPv4Address):
            assert not is_public(ipaddress.IPv6Address(f"::ffff:{address}"))
            assert not is_public(ipaddress.IPv6Address(f"64:ff9b::{address}"))


@pytest.mark.parametrize("network", EXCLUDED)
def test_the_neighbours_of_an_excluded_network_are_public_unless_they_are_excluded_too(network: str) -> None:
    block = ipaddress.ip_network(network)
    for number in (int(block[0]) - 1, int(block[-1]) + 1):
        if 0 <= number < 1 << block.max_prefixlen:
            neighbour = type(block[0])(number)
            given_out = neighbour.version == 4 or neighbour in ipaddress.ip_network("2000::/3")
            excluded = any(neighbour in ipaddress.ip_network(each) for each in EXCLUDED)
            assert is_public(neighbour) == (given_out and not excluded), neighbour


addresses = st.sampled_from(EXCLUDED).flatmap(lambda network: st.ip_addresses(network=network))


@given(address=addresses, data=st.data())
def test_no_address_of_an_excluded_network_is_accepted_in_any_form(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject
) -> None:
    written = forms_of_4(address) if isinstance(address, ipaddress.IPv4Address) else forms_of_6(address)
    host = data.draw(written) + data.draw(st.sampled_from(["", "."]))
    with pytest.raises(InvalidArgument, match="private, loopback"):
        destination_of(f"http://{host}/", private=False)
    assert permitted_addresses([str(address)], private=False) == []


@given(st.ip_addresses())
@example(ipaddress.ip_address("192.0.0.8"))
@example(ipaddress.ip_address("2606:4700::1"))
def test_what_is_public_is_global_to_the_standard_library_too(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assume(address not in ipaddress.ip_network("64:ff9b::/96"))  # is_reserved, whatever it contains
    if is_public(address):
        meant = getattr(address, "ipv4_mapped", None) or address
        assert meant.is_global
        assert not any((meant.is_multicast, meant.is_reserved, meant.is_unspecified))


@st.composite
def forms_of_4(draw: st.DrawFn, address: ipaddress.IPv4Address) -> str:
    """An IPv4 address as a resolver takes it: 1 to 4 parts, decimal, hexadecimal or octal; or within an IPv6 one."""
    inside = draw(st.sampled_from(["", "::ffff:", "0:0:0:0:0:FFFF:", "64:ff9b::"]))
    if inside:
        high, low = divmod(int(address), 1 << 16)
        return f"[{inside}{draw(st.sampled_from([str(address), f'{high:x}:{low:04X}']))}]"
    parts = draw(st.integers(1, 4))
    rest = int.from_bytes(address.packed[parts - 1 :])
    shown = st.sampled_from(["{}", "{:#x}", "{:#X}", "0{:o}", "0x000{:x}", "000{:o}"])
    return ".".join(draw(shown).format(number) for number in (*address.packed[: parts - 1], rest))


@st.composite
def forms_of_6(draw: st.DrawFn, address: ipaddress.IPv6Address) -> str:
    """An IPv6 address: short, long, in capitals, with an IPv4 address as its end."""
    front = ipaddress.IPv6Address(int(address) >> 32 << 32).exploded[:30]
    mixed = f"{front}{ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)}"
    text = draw(st.sampled_from([address.compressed, address.exploded, mixed]))
    return f"[{draw(st.sampled_from([text, text.upper()]))}]"


def test_of_several_addresses_those_that_are_allowed_are_used() -> None:
    mixed = ["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1"]
    assert permitted_addresses(mixed, private=False) == ["1.1.1.1", "2606:4700::1"]
    assert permitted_addresses(mixed, private=True) == mixed
