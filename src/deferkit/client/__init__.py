"""A policy of a decision service, with the calls of a `Deferrer`. Nothing but the standard library is needed."""

from deferkit.client.admin import Delivery, Key, Keys, Webhook, Webhooks
from deferkit.client.asynchronous import AsyncClient
from deferkit.client.client import Client
from deferkit.client.reviews import Review, Reviews
from deferkit.client.summary import PolicySummary
from deferkit.webhook_signature import verify_webhook

__all__ = [
    "AsyncClient",
    "Client",
    "Delivery",
    "Key",
    "Keys",
    "PolicySummary",
    "Review",
    "Reviews",
    "Webhook",
    "Webhooks",
    "verify_webhook",
]
