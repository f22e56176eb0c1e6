"""The review queue: leases with an epoch. Whoever holds the latest epoch of a seat may answer, nobody else."""

from typing import Any

import msgspec

from deferkit.serve import records
from deferkit.serve.commands.bodies import ClaimBody, CompleteBody, EffortBody, ExtendBody, LeaseBody, digest
from deferkit.serve.commands.outcome import book, check_rewards, cost_of, repeated
from deferkit.serve.money import MICRO, Micros, from_micros
from deferkit.serve.problems import conflict, invalid, unknown
from deferkit.serve.storage.database import Connection
from deferkit.serve.storage.rows import CLAIMED, DONE, DecisionRow, RequestRow, SeatRow
from deferkit.serve.storage.store_rows import seat_row
from deferkit.serve.work import Held, Needs, Question, Reply, Work


class ClaimReply(msgspec.Struct, frozen=True, kw_only=True):
    """A task to review. Task, seat and epoch are the claim: send them with the answer."""

    task: str
    seat: int
    epoch: int
    expert: str
    lease_until: float
    priority: float
    waiting_since: float
    deadline: float | None
    payload: Any
    model_answer: Any


class LeaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that goes on, or is over."""

    task: str
    seat: int
    epoch: int
    lease_until: float | None


class CompleteReply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an answer."""

    task: str
    seat: int
    finished: bool  # all reviewers of the task have answered
    learned: bool
    booked: float | dict[str, float] | None = None


class EffortReply(msgspec.Struct, frozen=True, kw_only=True):
    """What was paid."""

    task: str
    seat: int
    epoch: int
    booked: float | dict[str, float]


def plain(text: str | None) -> Any:
    """Return JSON as plain data that can be put into a reply as it is."""
    return None if text is None else msgspec.Raw(text.encode())


class Claim:
    """Give the reviewer the task that is worth most."""

    def __init__(self, body: ClaimBody) -> None:
        self.body = body

    def needs(self, held: Held) -> Needs:
        """Return what must be read first: nothing."""
        return Needs(held.id)

    def run(self, held: Held, work: Work, now: int) -> Question:
        """Ask the database, after all that came before was written."""
        spec = held.policy.spec
        question = claiming(held.id, self.body, spec.lease_s, late=spec.after_deadline == "wait", now=now)
        work.questions.append(question)
        return question


def claiming(policy: int, body: ClaimBody, lease_s: float, *, late: bool, now: int) -> Question:
    """Return the question for a task to review."""

    def ask(connection: Connection) -> Reply:
        connection.lock(f"{policy} {body.reviewer}")  # or two claims at once could get two seats at one task
        wanted: list[str | None] = [None] if body.experts is None else [*body.experts]
        for expert in wanted:
            found = connection.run(
                "find_seat",
                policy=policy,
                now=now,
                any_expert=int(expert is None),
                expert=expert or "",
                reviewer=body.reviewer,
                late=int(late),
            )
            if found:
                break
        else:
            return Reply(204, b"")
        task, seat = found[0]
        until = now + int((body.lease_s or lease_s) * MICRO)
        [row] = connection.run(
            "claim_seat", policy=policy, task=task, seat=seat, reviewer=body.reviewer, lease_until=until
        )
        claimed = seat_row(row)
        connection.run(
            "add_claim",
            policy=policy,
            task=task,
            seat=seat,
            epoch=claimed.epoch,
            reviewer=body.reviewer,
            at=now,
        )
        return Reply(
            200,
            msgspec.json.encode(
                ClaimReply(
                    task=task,
                    seat=seat,
                    epoch=claimed.epoch,
                    expert=claimed.expert,
                    lease_until=until / MICRO,
                    priority=claimed.priority,
                    waiting_since=claimed.created / MICRO,
                    deadline=None if claimed.deadline is None else claimed.deadline / MICRO,
                    payload=plain(claimed.payload),
                    model_answer=plain(claimed.model_answer),
                )
            ),
        )

    return Question(ask)


class Extend:
    """Hold a seat for longer."""

    def __init__(self, body: ExtendBody) -> None:
        self.body = body

    def needs(self, held: Held) -> Needs:
        """Return what must be read first: nothing."""
        return Needs(held.id)

    def run(self, held: Held, work: Work, now: int) -> Question:
        """Ask the database."""
        question = extending(held.id, self.body, held.policy.spec.lease_s, now=now)
        work.questions.append(question)
        return question


def extending(policy: int, body: ExtendBody, lease_s: float, *, now: int) -> Question:
    """Return the question for more time."""

    def ask(connection: Connection) -> Reply:
        until = now + int((body.lease_s or lease_s) * MICRO)
        values = {"policy": policy, "task": body.task, "seat": body.seat, "epoch": body.epoch}
        if not connection.run("extend_seat", lease_until=until, **values):
            return refused(connection, policy, body)
        return lease_reply(body, until / MICRO)

    return Question(ask)


class Release:
    """Give a seat back."""

    def __init__(self, body: LeaseBody) -> None:
        self.body = body

    def needs(self, held: Held) -> Needs:
        """Return what must be read first: nothing."""
        return Needs(held.id)

    def run(self, held: Held, work: Work, now: int) -> Question:  # noqa: ARG002
        """Ask the database."""
        question = releasing(held.id, self.body)
        work.questions.append(question)
        return question


def releasing(policy: int, body: LeaseBody) -> Question:
    """Return the question to give a seat back."""

    def ask(connection: Connection) -> Reply:
        values = {"policy": policy, "task": body.task, "seat": body.seat, "epoch": body.epoch}
        if not connection.run("release_seat", **values):
            return refused(connection, policy, body)
        return lease_reply(body, None)

    return Question(ask)


def lease_reply(body: LeaseBody, until: float | None) -> Reply:
    """Return the reply of a lease."""
    reply = LeaseReply(task=body.task, seat=body.seat, epoch=body.epoch, lease_until=until)
    return Reply(200, msgspec.json.encode(reply))


def refused(connection: Connection, policy: int, body: LeaseBody) -> Reply:
    """Return why a lease cannot be used."""
    seats = [seat_row(row) for row in connection.run("read_seats", policy=policy, keys=[body.task])]
    problem = not_held(body, seats[body.seat]) if body.seat < len(seats) else unknown("task under review", body.task)
    document = {"status": problem.status, "code": problem.code, "detail": str(problem)}
    return Reply(problem.status, msgspec.json.encode(document))


def not_held(body: LeaseBody, seat: SeatRow) -> Any:
    """Return the problem that a seat is not held by this claim."""
    state = "has gone to another reviewer" if seat.epoch != body.epoch else f"is {seat.state}"
    return conflict(
        f"Epoch {body.epoch} of task {body.task!r} is over: it {state}."
        " What it has cost can be booked once, as an effort."
    )


class Complete:
    """Take a reviewer's answer."""

    def __init__(self, body: CompleteBody) -> None:
        self.body = body
        self.digest = digest(body)

    @property
    def request(self) -> str:
        """What tells this answer from others."""
        return f"complete {self.body.epoch} {self.body.seat} {self.body.task}"

    def needs(self, held: Held) -> Needs:
        """Return what must be read first."""
        return Needs(held.id, (self.body.task,), seats=True, request=self.request)

    def run(self, held: Held, work: Work, now: int) -> Reply:
        """Take it if the claim still holds; the last of several answers settles the task."""
        body = self.body
        if (done := repeated(work, held, self.request, self.digest)) is not None:
            return done
        row = work.decisions[held.id, body.task]
        seats = work.seats[held.id, body.task]
        if row is None or body.seat >= len(seats):
            raise unknown("task under review", body.task)
        seat = seats[body.seat]
        if seat.state != CLAIMED or seat.epoch != body.epoch:
            raise not_held(body, seat)
        if seat.deadline is not None and seat.deadline < now and held.policy.spec.after_deadline == "model":
            raise conflict(f"The deadline of task {body.task!r} has passed: the model's answer is used.")
        check_rewards(held, body.rewards)
        micros = cost_of(held, body.cost)
        seat = seat._replace(state=DONE, answer=_text(body.answer), rewards=dict(body.rewards), cost=micros)
        after = [*seats[: body.seat], seat, *seats[body.seat + 1 :]]
        answered = [each for each in after if each.state == DONE]
        if len(answered) == len(after):
            outcome = finish(held, work, now, row, answered)
            work.put_seats(after)
            learned, booked = outcome.learned, outcome.booked
        else:
            record = records.Answered(
                task=row.task, id=row.id, seat=seat.seat, reviewer=seat.reviewer or "", answer=body.answer
            )
            work.record(held, record, now, row.task)
            work.put_seats(after)
            learned, booked = False, None
        reply = msgspec.json.encode(
            CompleteReply(
                task=body.task,
                seat=body.seat,
                finished=len(answered) == len(after),
                learned=learned,
                booked=booked,
            )
        )
        work.answer(RequestRow(held.id, self.request, self.digest, reply))
        return Reply(200, reply)


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def finish(held: Held, work: Work, now: int, row: DecisionRow, seats: list[SeatRow]) -> Any:
    """Settle a task with the answers of its reviewers: rewards are averaged, costs added up."""
    rewards = {}
    for name in held.policy.spec.deciders:
        given = [seat.rewards[name] for seat in seats if name in seat.rewards]
        if given:
            rewards[name] = sum(given) / len(given)
    costs = [seat.cost for seat in seats if seat.cost is not None]
    total: Micros | None = None
    if costs:
        total = {name: sum(cost[name] for cost in costs) for name in held.policy.spec.resources}
    answers = [msgspec.json.decode(seat.answer) for seat in seats if seat.answer is not None]
    return book(
        held,
        work,
        now,
        row,
        rewards,
        total,
        reviewers=[seat.reviewer or "" for seat in seats],
        answers=answers,
        final=row.route,
    )


class Effort:
    """Pay for work that came to nothing."""

    def __init__(self, body: EffortBody) -> None:
        self.body = body

    def needs(self, held: Held) -> Needs:
        """Return what must be read first."""
        return Needs(held.id, (self.body.task,), seats=True, claims=True)

    def run(self, held: Held, work: Work, now: int) -> Reply:
        """Book it once for each claim, from what is free."""
        body = self.body
        row = work.decisions[held.id, body.task]
        claims = work.claims[held.id, body.task]
        found = [c for c in claims if (c.seat, c.epoch) == (body.seat, body.epoch)]
        if row is None or not found:
            raise unknown("claim on task", body.task)
        seat = work.seats[held.id, body.task][body.seat]
        if seat.epoch == body.epoch and seat.state in (CLAIMED, DONE):
            raise conflict(f"Epoch {body.epoch} of task {body.task!r} is not over: complete it.")
        micros = cost_of(held, body.cost)
        if micros is None:
            raise invalid("An effort needs a cost.")
        claim = found[0]
        if claim.effort is not None and claim.effort != micros:
            raise conflict(f"Another effort was booked for epoch {body.epoch} of task {body.task!r}.")
        if claim.effort is None:
            work.record(
                held,
                records.Effort(
                    task=row.task,
                    id=row.id,
                    seat=body.seat,
                    epoch=body.epoch,
                    reviewer=claim.reviewer,
                    cost=micros,
                ),
                now,
                row.task,
            )
            work.efforts.append(
                {"policy": held.id, "task": body.task, "seat": body.seat, "epoch": body.epoch, "effort": micros}
            )
            work.claims[held.id, body.task] = [c._replace(effort=micros) if c is claim else c for c in claims]
        reply = EffortReply(task=body.task, seat=body.seat, epoch=body.epoch, booked=from_micros(micros))  # type: ignore[arg-type]
        return Reply(200, msgspec.json.encode(reply))
