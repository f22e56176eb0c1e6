"""Routes of webhooks and their deliveries."""

import asyncio

from litestar import Response, get, post
from litestar.params import JSONBody

from deferkit.errors import InvalidArgument
from deferkit.serve.api.common import Limit
from deferkit.serve.api.webhooks import (
    Backlog,
    DeliveryLine,
    DeliveryPage,
    NewWebhookReply,
    WebhookBody,
    WebhookDeleted,
    WebhookDeletionBody,
    WebhookId,
    WebhookPage,
)
from deferkit.serve.domain.accounts import MICRO
from deferkit.serve.domain.problems import Problem, invalid, unknown
from deferkit.serve.domain.webhook import (
    EVENTS,
    UNDELIVERED,
    DeliveryRow,
    WebhookRow,
    destination_of,
    new_id,
    new_secret,
)
from deferkit.serve.http.route_support import AnyRequest, caller_of, engine_of, json_response, line_of, route_options

MAX_WEBHOOKS = 20  # of a tenant: each is looked after once a second
EXAMPLE = {"url": "https://example.org/deferkit", "events": ["completed", "budget"]}


def webhook_fields(row: WebhookRow) -> dict[str, object]:
    """Return the public fields of a webhook."""
    return {
        "id": row.id,
        "url": row.url,
        "events": row.events.split(),
        "policies": None if row.policies is None else row.policies.split(),
        "models": bool(row.models),
        "created": row.created / MICRO,
    }


def delivery_line(row: DeliveryRow) -> DeliveryLine:
    """Return the public fields of a delivery."""
    due = row.due / MICRO if row.state == UNDELIVERED else None
    ended = None if row.ended is None else row.ended / MICRO
    return line_of(DeliveryLine, row, created=row.created / MICRO, due=due, ended=ended)


def webhook_of(request: AnyRequest, data: WebhookBody) -> WebhookRow:
    """Return the requested webhook; raise if its URL is not allowed."""
    engine = engine_of(request)
    try:
        destination_of(data.url, private=engine.settings.webhook_private)
    except InvalidArgument as error:
        raise invalid(str(error)) from None
    return WebhookRow(
        id=new_id(),
        tenant=caller_of(request).tenant,
        url=data.url,
        secret=new_secret(),
        events=" ".join(event for event in EVENTS if event in data.events),
        policies=None if data.policies is None else " ".join(sorted(set(data.policies))),
        models=int(data.models),
        created=engine.clock.now(),
    )


@post("/v1/webhooks", opt=route_options("webhooks", "admin", problems=(409,), example=EXAMPLE))
async def create_webhook(request: AnyRequest, data: JSONBody[WebhookBody]) -> Response[NewWebhookReply]:
    """Create a webhook: events go to a URL, signed with the secret in the reply. Each call creates another one."""
    row, webhooks = webhook_of(request, data), engine_of(request).webhooks

    def add() -> None:
        if sum(each.tenant == row.tenant for each in webhooks.store.webhooks()) >= MAX_WEBHOOKS:
            raise Problem(409, "too_many", f"There are {MAX_WEBHOOKS} webhooks: delete some.")
        webhooks.store.add(row)

    await asyncio.to_thread(add)
    await webhooks.reload()
    return json_response(webhook_fields(row) | {"secret": row.secret}, NewWebhookReply, 201)


@get("/v1/webhooks", opt=route_options("webhooks", "admin"))
async def list_webhooks(request: AnyRequest) -> Response[WebhookPage]:
    """List the webhooks of the caller's tenant, with their waiting events."""
    tenant, store = caller_of(request).tenant, engine_of(request).webhooks.store

    def read_page() -> dict[str, object]:
        rows = [row for row in store.webhooks() if row.tenant == tenant]
        waiting = store.count_waiting(row.id for row in rows)
        backlogs = {row.id: Backlog(waiting=waiting.get(row.id, 0), dropped=row.dropped) for row in rows}
        return {"webhooks": [webhook_fields(row) for row in rows], "backlogs": backlogs}

    return json_response(await asyncio.to_thread(read_page), WebhookPage)


@post(
    "/v1/webhooks/delete",
    status_code=200,
    opt=route_options("webhooks", "admin", problems=(404,), example={"id": "0123abcd"}),
)
async def delete_webhook(request: AnyRequest, data: JSONBody[WebhookDeletionBody]) -> Response[WebhookDeleted]:
    """Delete a webhook of the caller's tenant, with its undelivered events."""
    webhooks = engine_of(request).webhooks
    if not await asyncio.to_thread(webhooks.store.delete, caller_of(request).tenant, data.id):
        raise unknown("webhook", data.id)
    await webhooks.reload()
    return json_response(WebhookDeleted(deleted=data.id), WebhookDeleted)


@get("/v1/webhooks/deliveries", opt=route_options("webhooks", "admin", problems=(404,)))
async def list_deliveries(request: AnyRequest, id: WebhookId, limit: Limit = 100) -> Response[DeliveryPage]:
    """List the latest deliveries to a webhook: state, attempts, last status. Delivered ones are kept for a day."""
    tenant, store = caller_of(request).tenant, engine_of(request).webhooks.store

    def read_page() -> list[DeliveryRow]:
        if not any(row.id == id and row.tenant == tenant for row in store.webhooks()):
            raise unknown("webhook", id)
        return store.deliveries(id, limit)

    rows = await asyncio.to_thread(read_page)
    return json_response(DeliveryPage(deliveries=[delivery_line(row) for row in rows]), DeliveryPage)


WEBHOOK_ROUTES = [create_webhook, list_webhooks, delete_webhook, list_deliveries]
