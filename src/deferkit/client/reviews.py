"""The review queue, for reviewers."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from deferkit.client.calls import Calls
from deferkit.client.wire import amount_of, drop_none, names_of, rewards_of
from deferkit.errors import ConflictingObservation, UnknownDecision
from deferkit.types import Amount

FAILURES = {404: UnknownDecision, 409: ConflictingObservation}


class Review(NamedTuple):
    """A task that a reviewer holds. Task, seat, epoch and token are the claim; the next claim has a later epoch.

    >>> review = Review("claim-17", 0, 1, "human", 1.8e9, 0.2, 1.7e9, None, {"text": "…"}, "pay")
    >>> review.task, review.model_answer
    ('claim-17', 'pay')
    """

    task: str
    seat: int
    epoch: int
    expert: str
    lease_until: float  # seconds since 1970, by the service's clock
    priority: float  # what the expert is expected to earn above the model
    waiting_since: float
    deadline: float | None
    payload: Any
    model_answer: Any
    token: str | None = None  # proves the claim; None from a service older than tokens
    hold: Amount | None = None  # what it may cost before it asks again; known where `extend` was told its cost
    stopped: bool = False  # nothing is left for it: the model's answer is used
    booked: Amount | None = None  # the part of its cost that was booked when it was stopped


class Reviews:
    """The review queue of a policy: `client.reviews`.

        while review := client.reviews.claim("ann"):
            answer, minutes = ask(review.payload)
            client.reviews.complete(review, answer, rewards={"human": 1.0}, cost=minutes)

    A claim lasts for a lease. After that the task may go to another reviewer, and an answer to the old claim raises
    `ConflictingObservation`; what the work has cost can then be booked as an `effort`.
    """

    def __init__(self, calls: Calls, path: str) -> None:
        self._calls = calls
        self._path = f"{path}/reviews"

    def claim(
        self, reviewer: str, *, experts: Sequence[str] | None = None, lease_s: float | None = None
    ) -> Review | None:
        """Return the task that is worth most to review; None if none waits.

            review = client.reviews.claim("ann", experts=["human"], lease_s=120)

        `experts` are those that the reviewer can stand in for, by default all. Should the reply be lost on its way,
        the task comes back to the queue when the lease is over.
        """
        body = drop_none(reviewer=reviewer, experts=names_of("experts", experts), lease_s=lease_s)
        reply = self._calls.call("POST", f"{self._path}/claim", body)
        return None if reply is None else review_of(reply)

    def extend(self, review: Review, *, lease_s: float | None = None, cost: Amount | None = None) -> Review:
        """Hold a task for longer; return it with the end of its new lease.

            review = client.reviews.extend(review, lease_s=600)
            review = client.reviews.extend(review, cost=12.5)  # what it has cost so far
            if review.stopped:
                ...  # the model's answer is used, and the cost so far is booked: review.booked

        Where reviews can be stopped, more is reserved for one that says its cost. It may cost up to `hold` before it
        asks again.
        """
        reply = self._of("extend", review, lease_s=lease_s, cost=amount_of("cost", cost))
        until = reply["lease_until"]
        return review._replace(
            lease_until=review.lease_until if until is None else until,
            hold=reply.get("hold"),
            stopped=reply.get("stopped", False),
            booked=reply.get("booked"),
        )

    def complete(
        self,
        review: Review,
        answer: Any = None,
        *,
        rewards: Mapping[str, float] | None = None,
        cost: Amount | None = None,
    ) -> bool:
        """Answer a task; return whether all of its reviewers have. Rewards and the cost as far as they are known.

        client.reviews.complete(review, "refuse", rewards={"human": 1.0, "model": 0.0}, cost=4.5)
        """
        reply = self._of(
            "complete", review, answer=answer, rewards=rewards_of(rewards) or None, cost=amount_of("cost", cost)
        )
        return bool(reply["finished"])

    def release(self, review: Review) -> None:
        """Give a task back to the queue; nothing happens if it is no longer held.

        client.reviews.release(review)
        """
        try:
            self._of("release", review)
        except ConflictingObservation:
            return

    def effort(self, review: Review, cost: Amount) -> None:
        """Book, once, what work has cost that came to nothing: its lease had lapsed, or the task was closed.

        client.reviews.effort(review, cost=2.5)
        """
        self._of("effort", review, cost=amount_of("cost", cost))

    def decline(self, review: Review, reason: str = "") -> None:
        """Give a task back for good: this reviewer does not get it again.

            client.reviews.decline(review, "I know the sender.")

        Args:
            review: What was claimed.
            reason: Why, in up to 1,000 characters.
        """
        self._of("decline", review, reason=reason)

    def correct(
        self, review: Review, answer: Any = None, *, cost: Amount | None = None, id: str | None = None
    ) -> dict[str, Any]:
        """Replace an answer that was given to this claim; return the state of the task.

            client.reviews.correct(review, {"spam": False}, cost=2.0)

        Rewards of the policy's reward rule are computed again; those that were reported stay.

        Args:
            review: The claim that was completed.
            answer: What counts instead.
            cost: The corrected cost; by default the cost stays.
            id: The same id again changes nothing; made if none is given.
        """
        reply: dict[str, Any] = self._of(
            "correct", review, id=id or uuid.uuid4().hex, answer=answer, cost=amount_of("cost", cost)
        )
        return reply

    def held(self, reviewer: str) -> list[Review]:
        """Return the claims of a reviewer, without their tokens: `resume` issues a new one.

        [review] = client.reviews.held("ann")
        """
        path = f"{self._path}/held?reviewer={quote(reviewer, safe='')}"
        return [review_of(each) for each in self._calls.pages(path, "held", "after")]

    def resume(self, reviewer: str, review: Review) -> Review:
        """Go on with a claim whose token was lost; return it with another one and a new lease.

            review = client.reviews.resume("ann", client.reviews.held("ann")[0])

        It needs a key that is bound to the reviewer, unless the service needs none.
        """
        body = {"reviewer": reviewer, "task": review.task, "seat": review.seat}
        return review_of(self._calls.call("POST", f"{self._path}/resume", body, FAILURES))

    def status(self, reviewer: str) -> dict[str, Any]:
        """Return a reviewer's queue, the reason if it is empty (`why_empty`, `text`), and the reviewer's work so far.

        client.reviews.status("ann")["waiting"]
        """
        return self._calls.fields("GET", f"{self._path}/status?reviewer={quote(reviewer, safe='')}")

    def list(self, state: str = "all") -> Iterator[dict[str, Any]]:
        """Yield the seats of the queue in the order in which they are offered. Needs the scope admin or read.

            oldest = min(client.reviews.list("waiting"), key=lambda seat: seat["created"])

        Args:
            state: "waiting", "claimed" or "all".
        """
        yield from self._calls.pages(f"{self._path}?state={quote(state, safe='')}", "seats", "after")

    def reassign(self, task: str, seat: int = 0) -> None:
        """End the claim of a reviewer who does not come back: the task waits again. Needs the scope admin.

        client.reviews.reassign("claim-17")
        """
        self._calls.call("POST", f"{self._path}/reassign", {"task": task, "seat": seat}, FAILURES)

    def document(self) -> dict[str, Any]:
        """Return the review settings: the `review` document, lease, experts, unit of the cost.

        client.reviews.document()["review"]["form"]
        """
        return self._calls.fields("GET", self._path.removesuffix("s"))

    def _of(self, what: str, review: Review, **fields: Any) -> Any:
        body = drop_none(task=review.task, seat=review.seat, epoch=review.epoch, token=review.token, **fields)
        return self._calls.call("POST", f"{self._path}/{what}", body, FAILURES)


def review_of(reply: Mapping[str, Any]) -> Review:
    """Return the claim that a service has replied with; what only a later version knows is left out."""
    return Review(**{name: value for name, value in reply.items() if name in Review._fields})
