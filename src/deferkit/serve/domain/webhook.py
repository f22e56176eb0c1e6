"""Webhooks: specifications, events and permitted addresses."""

import ipaddress
import secrets
import socket
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.accounts import MICRO, Account, all_in_reply, in_reply
from deferkit.serve.domain.records import DecidedRecord, ExpiredRecord
from deferkit.serve.domain.rows import DecisionRow
from deferkit.serve.domain.spec import PolicySpec

DECIDED, COMPLETED, EXPIRED, BUDGET = EVENTS = ("decided", "completed", "expired", "budget")
# what a delivery does: waiting → delivered | dead
UNDELIVERED, DELIVERED, DEAD = "waiting", "delivered", "dead"
DEAD_AFTER_S = 3 * 86_400.0  # after its event a delivery is not tried again
SECRET_PREFIX = "whsec_"


class WebhookRow(NamedTuple):
    """A webhook of a tenant: its URL, and the events and policies that it subscribes to."""

    id: str
    tenant: str
    url: str
    secret: str  # as it is: a signature needs it
    events: str  # separated by spaces
    policies: str | None  # names separated by spaces; None: all of the tenant
    models: int  # 1: decided also tells of tasks that the model decides
    created: int
    dropped: int = 0  # events that were given up because too many waited

    def wants(self, event: str, policy: str) -> bool:
        """Return whether to deliver an event of a policy."""
        return event in self.events.split() and (self.policies is None or policy in self.policies.split())


class EventRow(NamedTuple):
    """An event, and the webhooks that it is to be delivered to."""

    id: str
    policy: int
    event: str
    body: bytes
    created: int
    webhooks: tuple[str, ...]


class DeliveryRow(NamedTuple):
    """An event for one webhook."""

    webhook: str
    id: str  # of the event: the receiver knows a repetition by it
    policy: int
    event: str
    body: bytes
    created: int
    due: int  # the next attempt
    state: str = UNDELIVERED
    attempts: int = 0
    status: int | None = None  # of the last reply
    error: str | None = None  # why there was none, or not a good one
    ended: int | None = None  # when it was delivered, or given up


class Attempt(NamedTuple):
    """The result of an attempt at a delivery; fields are in the order of the query that writes it."""

    state: str
    due: int
    status: int | None
    error: str | None
    ended: int | None
    webhook: str
    id: str
    created: int


def new_id() -> str:
    """Return an id of a webhook that nothing else has."""
    return secrets.token_hex(12)


def new_event_id(at: int) -> str:
    """Return an id of an event that nothing else has; ids grow with time, so that rows are written side by side.

    >>> new_event_id(1_700_000_000_000_000) < new_event_id(1_700_000_000_000_001)
    True
    """
    return f"{at:014x}{secrets.token_hex(8)}"


def new_secret() -> str:
    """Return a secret to sign with: 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


MAX_BODY = 65_536  # bytes
USED_80, USED_100, SUSPENSE, FROZEN = "used_80_percent", "used_100_percent", "suspense", "frozen"


class EventBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a delivery: event, time, policy."""

    id: str  # the same whenever the event is sent again
    event: str
    at: float  # seconds since 1970
    policy: str
    seq: int  # the record of the policy's log that tells of it: events may come in another order
    data: Any


def decided_data(record: DecidedRecord) -> dict[str, Any]:
    """Return the data of a `decided` event."""
    return {
        "task": record.task,
        "id": record.id,
        "route": record.route,
        "reason": record.reason,
        "price": record.price,
        "reserved": record.reserved,
        "expected_gain": record.expected_gain,
    }


def completed_data(row: DecisionRow) -> dict[str, Any]:
    """Return the data of a `completed` event. An unconfirmed cost is null."""
    return {
        "task": row.task,
        "id": row.id,
        "route": row.route,
        "final": row.final,
        "answer": None if row.answer is None else msgspec.Raw(row.answer.encode()),
        "rewards": row.rewards,
        "cost": None if row.cost is None else all_in_reply(row.cost),
    }


def expired_data(record: ExpiredRecord, final: str) -> dict[str, Any]:
    """Return the data of an `expired` event; `final` is the decider whose answer is used."""
    return {"task": record.task, "id": record.id, "why": record.why, "final": final}


class BudgetAlarm(NamedTuple):
    """A condition of a budget that needs attention; `resource` is None if it concerns all budgets."""

    kind: str
    resource: str | None


def alarms_of(
    accounts: Mapping[str, Account], spec: PolicySpec, before: frozenset[BudgetAlarm]
) -> frozenset[BudgetAlarm]:
    """Return the active alarms, with hysteresis.

    Args:
        accounts: The accounts by resource.
        spec: The policy: nothing is left of a budget when less is free than one task may cost.
        before: The alarms that were active before. Those of a used share end only 5 per cent of the total below it, so
            that reservations that come and go do not raise them again and again.
    """
    found = set()
    for name, account in accounts.items():
        if account.suspense:
            found.add(BudgetAlarm(SUSPENSE, name))
        if account.total is None:
            continue
        used = account.posted + account.reserved
        whole = account.total - used < max(1, round((spec.budget[name].least_hold or 0) * MICRO))
        for kind, percent, passed in ((USED_80, 80, 100 * used >= 80 * account.total), (USED_100, 100, whole)):
            alarm = BudgetAlarm(kind, name)
            if passed or (alarm in before and 100 * used >= (percent - 5) * account.total):
                found.add(alarm)
    if any(account.suspense for account in accounts.values()):
        found.add(BudgetAlarm(FROZEN, None))
    return frozenset(found)


def budget_data(alarm: BudgetAlarm, accounts: Mapping[str, Account]) -> dict[str, Any]:
    """Return the data of a `budget` event: the alarm, and the accounts."""
    budget = {
        name: {
            "total": None if account.total is None else in_reply(account.total),
            "posted": in_reply(account.posted),
            "reserved": in_reply(account.reserved),
            "suspense": in_reply(account.suspense),
        }
        for name, account in accounts.items()
    }
    return {"alarm": alarm.kind, "resource": alarm.resource, "budget": budget}


def encode_event(event: EventBody) -> bytes:
    """Return an event as bytes; without its answer if that makes it too large."""
    body = msgspec.json.encode(event)
    if len(body) > MAX_BODY and "answer" in event.data:
        data = event.data | {"answer": None, "answer_left_out": True}
        body = msgspec.json.encode(msgspec.structs.replace(event, data=data))
    return body


MAX_URL = 2000
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
        """The `Host` header, without the default port of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def destination_of(url: str, *, private: bool) -> Destination:
    """Return the destination of a webhook's URL; raise if the URL is not allowed.

    Args:
        url: http or https, without credentials and fragment.
        private: Whether addresses that are not public are allowed. A name is not looked up here: that is done before
            each connection.

    The error does not repeat the URL, which may be a secret itself.

    >>> destination_of("https://example.org/hook?a=1", private=False)
    Destination(host='example.org', port=443, path='/hook?a=1', secure=True)
    >>> destination_of("http://0x7f.1/", private=False)
    Traceback (most recent call last):
    deferkit.errors.InvalidArgument: The url leads to a private, loopback, link-local, multicast or reserved address.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or len(url) > MAX_URL:
        raise InvalidArgument(f"The url has at most {MAX_URL:,} printable ASCII characters, without spaces and \\.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").removesuffix("."), parts.port  # a final dot is the root of all names
    except ValueError:
        raise InvalidArgument("The url is not valid.") from None
    if parts.scheme not in ("http", "https") or not host or host.endswith("."):
        raise InvalidArgument("The url must begin with http:// or https:// and a host.")
    if "@" in parts.netloc or "#" in url or "%" in host or port == 0:
        raise InvalidArgument("The url must not have credentials, a fragment or a zone.")
    address = literal_address(host)
    local = host == "localhost" or host.endswith(".localhost")
    if not private and (local or (address is not None and not is_public(address))):
        raise InvalidArgument(f"The url leads to {NOT_PUBLIC}.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    secure = parts.scheme == "https"
    return Destination(host, port or (443 if secure else 80), path, secure)


def literal_address(host: str) -> Address | None:
    """Return the IP address of a host in any form that resolvers accept; None if the host is a name.

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


def permitted_addresses(addresses: Iterable[str], *, private: bool) -> list[str]:
    """Return the permitted addresses of a name.

    >>> permitted_addresses(["10.0.0.1", "1.1.1.1"], private=False)
    ['1.1.1.1']
    """
    return [each for each in addresses if private or is_public(ipaddress.ip_address(each))]
