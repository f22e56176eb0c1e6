"""Routes of holds, for reviews that can be stopped."""

from litestar import Response, post
from litestar.params import JSONBody

from deferkit.serve.domain.request_bodies import HoldBody, StopBody
from deferkit.serve.engine.commands.hold import ExtendHold, HoldReply, StopReview
from deferkit.serve.engine.commands.outcome import OutcomeReply
from deferkit.serve.http.route_support import AnyRequest, PolicyName, about, done


@post(
    "/v1/policies/{name:str}/holds",
    status_code=200,
    opt=about("tasks", "observe", problems=(409,), example={"id": "h-1", "task": "mail-1", "amount": 2.5}),
)
async def extend_hold(request: AnyRequest, name: PolicyName, data: JSONBody[HoldBody]) -> Response[HoldReply]:
    """Reserve more for a pending review that can be stopped, once for each id; less where less is left."""
    return await done(request, name, ExtendHold(data), HoldReply)


@post(
    "/v1/policies/{name:str}/stops",
    status_code=200,
    opt=about("tasks", "observe", problems=(409,), example={"task": "mail-1", "cost": 7.5}),
)
async def stop_review(request: AnyRequest, name: PolicyName, data: JSONBody[StopBody]) -> Response[OutcomeReply]:
    """Stop a pending review: what it has cost is booked, and the model's answer is used."""
    return await done(request, name, StopReview(data), OutcomeReply)


ROUTES = [extend_hold, stop_review]
