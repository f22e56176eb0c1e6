"""Administration by the client: API keys and webhooks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from deferkit.client.calls import Calls
from deferkit.client.wire import drop_none, names_of


class Key(NamedTuple):
    """A key of a tenant, without its secret.

    >>> Key("0123456789ab", ("decide",), "router", 1.7e9).revoked is None
    True
    """

    id: str
    scopes: tuple[str, ...]
    name: str
    created: float  # seconds since 1970, by the service's clock, like all times here
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None  # right to about a minute
    reviewer: str | None = None  # the only reviewer that it claims for


class Keys:
    """The keys of the tenant that a client's key belongs to: `client.keys`. It needs the scope `admin`.

        secret, key = client.keys.create(["decide", "observe"], name="router", expires_s=30 * 86_400)
        client.keys.revoke(key)

    The first key of a service is made by `deferkit keys create`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, scopes: Sequence[str], *, name: str = "", expires_s: float | None = None, reviewer: str | None = None
    ) -> tuple[str, Key]:
        """Make a key; return its secret, which is shown only once, and its record.

            secret, key = client.keys.create(["decide"], name="router")

        Args:
            scopes: Scopes of the key: decide, observe, review, read, admin, operator; only those that this client has.
            name: A name to know it by.
            expires_s: Seconds after which it is refused; never by default.
            reviewer: The only reviewer that it may claim reviews for; any by default.

        Should the reply be lost on its way, the call is repeated and there is a key that nobody has: `list` shows it.
        """
        body = drop_none(scopes=names_of("scopes", scopes), name=name, expires_s=expires_s, reviewer=reviewer)
        reply: dict[str, Any] = self._calls.call("POST", "/v1/keys", body)
        return reply.pop("key"), key_of(reply)

    def list(self) -> list[Key]:
        """Return the keys of the tenant, revoked and expired ones too.

        unused = [key for key in client.keys.list() if key.last_used is None]
        """
        return [key_of(each) for each in self._calls.call("GET", "/v1/keys")["keys"]]

    def revoke(self, key: Key | str) -> Key:
        """Revoke a key, or the one with this id; the service refuses it within a second.

        client.keys.revoke("0123456789ab")
        """
        number = key.id if isinstance(key, Key) else key
        return key_of(self._calls.call("POST", "/v1/keys/revoke", {"id": number}))


def key_of(reply: dict[str, Any]) -> Key:
    """Return the key that a service has replied with."""
    return Key(**reply | {"scopes": tuple(reply["scopes"])})


class Webhook(NamedTuple):
    """A webhook of a tenant, without its secret.

    >>> Webhook("0123abcd", "https://example.org/", ("completed",), None, False, 1.7e9).policies is None
    True
    """

    id: str
    url: str
    events: tuple[str, ...]
    policies: tuple[str, ...] | None  # None: all of the tenant
    models: bool  # decided also tells of tasks that the model decides
    created: float  # seconds since 1970, by the service's clock, like all times here


class Delivery(NamedTuple):
    """An event that was delivered to a webhook, or is to be.

    >>> Delivery("89ef", "completed", "delivered", 1, 204, None, 1.7e9, None, 1.7e9).state
    'delivered'
    """

    id: str  # of the event, as in the header `deferkit-event`
    event: str
    state: str  # waiting, delivered or dead
    attempts: int
    status: int | None  # of the last reply
    error: str | None
    created: float
    due: float | None  # the next attempt
    ended: float | None


class Webhooks:
    """The webhooks of the tenant that a client's key belongs to: `client.webhooks`. It needs the scope `admin`.

        secret, webhook = client.webhooks.create("https://example.org/deferkit", ["completed", "budget"])
        client.webhooks.deliveries(webhook)

    The receiver verifies each call with `deferkit.client.verify_webhook` and the secret.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def create(
        self, url: str, events: Sequence[str], *, policies: Sequence[str] | None = None, models: bool = False
    ) -> tuple[str, Webhook]:
        """Have events sent to a URL; return the secret that they are signed with, this once, and the webhook.

            secret, webhook = client.webhooks.create("https://example.org/deferkit", ["completed"])

        Args:
            url: http or https; an address that everyone can reach, unless the service runs with `--webhook-private`.
            events: Of decided, completed, expired, budget.
            policies: Names of policies; all of the tenant by default.
            models: Whether `decided` also tells of tasks that the model decides.

        Should the reply be lost on its way, the call is repeated and there are two webhooks: `list` shows them.
        """
        body = drop_none(
            url=url, events=names_of("events", events), policies=names_of("policies", policies), models=bool(models)
        )
        reply: dict[str, Any] = self._calls.call("POST", "/v1/webhooks", body)
        return reply.pop("secret"), webhook_of(reply)

    def delete(self, webhook: Webhook | str) -> None:
        """Delete a webhook, or the one with this id, with what was not delivered yet.

        client.webhooks.delete("0123abcd")
        """
        self._calls.call("POST", "/v1/webhooks/delete", {"id": id_of(webhook)})

    def deliveries(self, webhook: Webhook | str, *, limit: int = 100) -> list[Delivery]:
        """Return the latest deliveries to a webhook, at most so many; delivered ones stay for a day.

        dead = [each for each in client.webhooks.deliveries(webhook) if each.state == "dead"]
        """
        reply = self._calls.call("GET", f"/v1/webhooks/deliveries?id={id_of(webhook)}&limit={int(limit)}")
        return [Delivery(**each) for each in reply["deliveries"]]

    def list(self) -> list[Webhook]:
        """Return the webhooks of the tenant.

        urls = [webhook.url for webhook in client.webhooks.list()]
        """
        return [webhook_of(each) for each in self._calls.call("GET", "/v1/webhooks")["webhooks"]]


def id_of(webhook: Webhook | str) -> str:
    """Return the id of a webhook."""
    return webhook.id if isinstance(webhook, Webhook) else webhook


def webhook_of(reply: dict[str, Any]) -> Webhook:
    """Return the webhook that a service has replied with."""
    policies = reply["policies"]
    fields = {"events": tuple(reply["events"]), "policies": None if policies is None else tuple(policies)}
    return Webhook(**reply | fields)
