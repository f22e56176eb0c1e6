"""Bodies and replies of webhooks and their deliveries."""

from typing import Annotated

import msgspec

from deferkit.serve.api.common import Body
from deferkit.serve.domain.spec import Name
from deferkit.serve.domain.webhook import EVENTS, MAX_URL

EVENT_PATTERN = f"^({'|'.join(EVENTS)})$"
WebhookId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,64}$", description="The id of the webhook.")]


class WebhookBody(Body, frozen=True, kw_only=True):
    """A webhook to create: its URL, events and policies."""

    url: Annotated[str, msgspec.Meta(min_length=8, max_length=MAX_URL, description="An http or https URL.")]
    events: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=EVENT_PATTERN)]], msgspec.Meta(min_length=1, max_length=len(EVENTS))
    ]
    policies: (
        Annotated[
            list[Name],
            msgspec.Meta(
                min_length=1,
                max_length=100,
                description="The policies whose events are sent. All of the tenant by default.",
            ),
        ]
        | None
    ) = None
    models: Annotated[bool, msgspec.Meta(description="Whether to send decisions for the model too.")] = False


class WebhookDeletionBody(Body, frozen=True, kw_only=True):
    """A webhook to delete."""

    id: WebhookId


class WebhookLine(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, without its secret. Times are seconds since 1970."""

    id: str
    url: str
    events: list[str]
    policies: list[str] | None
    models: bool
    created: float


class NewWebhookReply(WebhookLine, frozen=True, kw_only=True):
    """A new webhook. Only this reply contains the secret that signs its calls."""

    secret: str


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Undelivered events of a webhook: those that wait, and those that were given up because too many waited."""

    waiting: int
    dropped: int


class WebhookPage(msgspec.Struct, frozen=True, kw_only=True):
    """All webhooks of a tenant, and the backlog of each by its id."""

    webhooks: list[WebhookLine]
    backlogs: dict[str, Backlog]


class WebhookDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the deleted webhook."""

    deleted: str


class DeliveryLine(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery of an event: waiting (for the attempt at `due`), delivered, or dead."""

    id: str
    event: str
    state: str
    attempts: int
    status: int | None  # of the last reply
    error: str | None
    created: float
    due: float | None
    ended: float | None


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries, latest first."""

    deliveries: list[DeliveryLine]
