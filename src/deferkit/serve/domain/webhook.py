"""Webhooks of a tenant, and the deliveries of events to them, as the store has them. Times are microseconds."""

import secrets
from typing import NamedTuple

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

    def wants(self, event: str, policy: str) -> bool:
        """Return whether an event of a policy is to be delivered."""
        return event in self.events.split() and (self.policies is None or policy in self.policies.split())


class DeliveryRow(NamedTuple):
    """An event that is to be delivered to one webhook."""

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


def new_id() -> str:
    """Return an id of a webhook or an event that nothing else has."""
    return secrets.token_hex(12)


def new_secret() -> str:
    """Return a secret to sign with: 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)
