"""Commands that answer a review or correct an answer."""

from collections.abc import Iterable
from typing import Any

import msgspec

from deferkit.errors import DeferkitError
from deferkit.serve.api.common import Reply
from deferkit.serve.api.reviews import (
    AnswerCorrectionBody,
    AnswerCorrectionReply,
    CompleteBody,
    CompleteReply,
    EffortBody,
    EffortReply,
)
from deferkit.serve.api.tasks import OutcomeReply
from deferkit.serve.domain import records
from deferkit.serve.domain.accounts import Micros, all_in_reply, from_micros
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, invalid, unknown
from deferkit.serve.domain.review import AFTER, TableRule, check_answer
from deferkit.serve.domain.rows import (
    CLAIMED,
    CLOSED,
    DONE,
    OPEN,
    ClaimRow,
    DecisionRow,
    RequestRow,
    SeatRow,
    is_stopped,
)
from deferkit.serve.engine.commands.correction import above_ceiling, replace
from deferkit.serve.engine.commands.lease import check_token, claim_of, not_held, plain
from deferkit.serve.engine.commands.outcome import (
    book,
    check_known,
    check_rewards,
    check_room,
    cost_of,
    idempotent_reply,
    judgement_of,
    sum_costs,
    used_answer,
)
from deferkit.serve.engine.unit_of_work import UnitOfWork, digest
from deferkit.serve.storage.connections import ReadSet, from_json_column, to_json_column
from deferkit.types import MODEL


class Complete:
    """Record a reviewer's answer.

    Args:
        body: The claim and the answer.
        bound: The only reviewer that the caller may act for; None (default): any.
    """

    def __init__(self, body: CompleteBody, bound: str | None = None) -> None:
        self.body = body
        self.bound = bound
        self.digest = digest(body)

    @property
    def request(self) -> str:
        """The idempotency key of this answer."""
        return f"complete {self.body.epoch} {self.body.seat} {self.body.task}"

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), seats=True, claims=True, request=self.request, observes=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Record it if the claim still holds; the last of several answers ends the task."""
        body = self.body
        row = work.decisions[owned.id, body.task]
        seats = work.seats[owned.id, body.task]
        claim = claim_of(body, work.claims[owned.id, body.task], self.bound)
        if (done := idempotent_reply(work, owned, self.request, self.digest)) is not None:
            return with_model_answer(done.body, owned, seats[body.seat])
        if row is None or body.seat >= len(seats):
            raise unknown("task under review", body.task)
        visible = None
        if claim is not None:
            check_token(body, claim.token)
            visible = claim.visible
        seat = seats[body.seat]
        if is_stopped(row) and seat.state == CLOSED and seat.epoch == body.epoch:
            raise conflict(
                f"The review of task {body.task!r} was stopped: the model's answer is used."
                " What it has cost since can be booked once, as an effort."
            )
        if seat.state != CLAIMED or seat.epoch != body.epoch:
            raise not_held(body, seat)
        if seat.deadline is not None and seat.deadline < now and owned.policy.spec.after_deadline == "model":
            raise conflict(f"The deadline of task {body.task!r} has passed: the model's answer is used.")
        check_form(owned, body.answer)
        check_rewards(owned, body.rewards)
        check_known(row, body.rewards)
        micros = cost_of(owned, body.cost)
        if (costs := sum_costs(micros, *(each.cost for each in seats if each.state == DONE))) is not None:
            check_room(owned, costs, row.held)
        rewards = {name: float(value) for name, value in body.rewards.items()}
        seat = seat._replace(state=DONE, answer=to_json_column(body.answer), rewards=rewards, cost=micros)
        after = [*seats[: body.seat], seat, *seats[body.seat + 1 :]]
        work.put_seats(owned, after)
        finished = all(each.state == DONE for each in after)
        outcome = OutcomeReply(task=row.task, changed=False, learned=False)
        visible = visible if owned.policy.spec.review_used is not None else None
        if finished:
            outcome = book(owned, work, now, row, {}, None, ends=True, visible=visible)
        else:
            work.record(owned, record_of(row, seat, body, visible), now, row.task)
        reply = msgspec.json.encode(
            CompleteReply(
                task=body.task,
                seat=body.seat,
                finished=finished,
                learned=outcome.learned,
                booked=outcome.booked,
                unconfirmed=outcome.unconfirmed,
            )
        )
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, reply))
        return with_model_answer(reply, owned, seat)


def check_form(owned: OwnedPolicy, answer: Any) -> None:
    """Raise if the policy has a review form that an answer does not match."""
    if (document := owned.policy.spec.review_used) is not None:
        try:
            check_answer(document.form, answer)
        except DeferkitError as error:
            raise invalid(str(error)) from error


def with_model_answer(reply: bytes, owned: OwnedPolicy, seat: SeatRow) -> Reply:
    """Return the reply to an answer, with the model's where the policy shows it then.

    It is not part of the stored reply of the idempotency key, where it would survive an erasure.
    """
    document = owned.policy.spec.review_used
    if document is None or document.model_answer != AFTER:
        return Reply(200, reply)
    said = msgspec.json.decode(reply, type=CompleteReply)
    return Reply(200, msgspec.json.encode(msgspec.structs.replace(said, model_answer=plain(seat.model_answer))))


def record_of(row: DecisionRow, seat: SeatRow, body: CompleteBody, visible: bool | None) -> records.AnsweredRecord:
    """Return the record of an answer to a task that waits for other reviewers' answers."""
    return records.AnsweredRecord(
        task=row.task,
        id=row.id,
        seat=seat.seat,
        reviewer=seat.reviewer or "",
        answer=body.answer,
        rewards=seat.rewards,
        cost=seat.cost,
        visible=visible,
    )


class Effort:
    """Book the cost of a claim that lapsed.

    Args:
        body: The claim and the cost.
        bound: The only reviewer that the caller may act for; None (default): any.
    """

    def __init__(self, body: EffortBody, bound: str | None = None) -> None:
        self.body = body
        self.bound = bound

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        return ReadSet(owned.id, (self.body.task,), seats=True, claims=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Book it once for each claim; nothing was reserved for it."""
        body = self.body
        row = work.decisions[owned.id, body.task]
        claims = work.claims[owned.id, body.task]
        claim = claim_of(body, claims, self.bound)
        if row is None or claim is None:
            raise unknown("claim on task", body.task)
        check_token(body, claim.token)
        seat = work.seats[owned.id, body.task][body.seat]
        if seat.epoch == body.epoch and seat.state == CLAIMED:
            raise conflict(f"Epoch {body.epoch} of task {body.task!r} is not over: complete it.")
        if seat.epoch == body.epoch and seat.state == DONE:
            raise conflict(f"Epoch {body.epoch} of task {body.task!r} was completed: its cost is that of the answer.")
        micros = cost_of(owned, body.cost)
        if micros is None:
            raise invalid("An effort needs a cost.")
        if owned.policy.exceeds_ceiling(micros):
            raise invalid("The cost of an effort is at most max_reported_cost: there is no answer that it belongs to.")
        if claim.effort is not None and claim.effort != micros:
            raise conflict(f"Another effort was booked for epoch {body.epoch} of task {body.task!r}.")
        if claim.effort is None:
            together = sum_costs(micros, *(each.effort for each in claims))
            if together is not None and owned.policy.exceeds_ceiling(together):
                raise invalid(
                    f"The efforts of a task are together at most max_reported_cost; some of task {body.task!r} are"
                    " booked. Report what it has cost beyond that as the cost of the task: a correction confirms it."
                )
            check_room(owned, micros)
            work.record(
                owned,
                records.EffortRecord(
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
                {"policy": owned.id, "task": body.task, "seat": body.seat, "epoch": body.epoch, "effort": micros}
            )
            work.claims[owned.id, body.task] = [c._replace(effort=micros) if c is claim else c for c in claims]
        reply = EffortReply(task=body.task, seat=body.seat, epoch=body.epoch, booked=from_micros(micros))  # type: ignore[arg-type]
        return Reply(200, msgspec.json.encode(reply))


class CorrectAnswer:
    """Replace an answer; once for each id.

    Args:
        body: The claim and the answer that replaces the one before.
        bound: The only reviewer that the caller may act for; None (default): any.
    """

    def __init__(self, body: AnswerCorrectionBody, bound: str | None = None) -> None:
        self.body = body
        self.bound = bound
        self.digest = digest(body)
        self.request = f"answer {body.id}"

    def reads(self, owned: OwnedPolicy) -> ReadSet:
        """Return the rows to read before `run`."""
        tasks = (self.body.task,)
        return ReadSet(owned.id, tasks, seats=True, claims=True, request=self.request, observes=True, histories=True)

    def run(self, owned: OwnedPolicy, work: UnitOfWork, now: int) -> Reply:
        """Replace it if the claim was completed; correct the rewards of the rule and the cost if the task has ended."""
        body = self.body
        claim = claim_of(body, work.claims[owned.id, body.task], self.bound)
        if (done := idempotent_reply(work, owned, self.request, self.digest)) is not None:
            return done
        owned.check_quota()
        row, seats = self._read_completed(owned, work, claim)
        check_form(owned, body.answer)
        before, micros = seats[body.seat], cost_of(owned, body.cost)
        if micros == before.cost:
            micros = None
        seat = before._replace(answer=to_json_column(body.answer), cost=before.cost if micros is None else micros)
        after = [*seats[: body.seat], seat, *seats[body.seat + 1 :]]
        learned = False
        if row.final is None:
            if (costs := sum_costs(*(each.cost for each in after))) is not None:
                check_room(owned, costs, row.held)
            work.put_seats(owned, after)
            work.record(owned, self._record(row, seat), now, row.task)
        else:
            learned = self._settle_again(owned, work, now, row, before, after, micros)
        row = work.decisions[owned.id, body.task] or row
        reply = AnswerCorrectionReply(
            task=row.task,
            seat=seat.seat,
            finished=row.final is not None,
            learned=learned,
            rewards=row.rewards,
            cost=None if row.cost is None else all_in_reply(row.cost),
        )
        work.answer(owned, RequestRow(owned.id, self.request, self.digest, said := msgspec.json.encode(reply)))
        return Reply(200, said)

    def _read_completed(
        self, owned: OwnedPolicy, work: UnitOfWork, claim: ClaimRow | None
    ) -> tuple[DecisionRow, list[SeatRow]]:
        """Return the decision and the seats of the task; raise if the claim is not one that was completed."""
        body = self.body
        row, seats = work.decisions[owned.id, body.task], work.seats[owned.id, body.task]
        if row is None or claim is None:
            raise unknown("claim on task", body.task)
        check_token(body, claim.token)
        seat = seats[body.seat]
        if seat.state != DONE or seat.epoch != body.epoch:
            raise conflict(f"Epoch {body.epoch} of task {body.task!r} was not completed: there is nothing to correct.")
        return row, seats

    def _settle_again(
        self,
        owned: OwnedPolicy,
        work: UnitOfWork,
        now: int,
        row: DecisionRow,
        before: SeatRow,
        seats: list[SeatRow],
        micros: Micros | None,
    ) -> bool:
        """Judge the answers of an ended task again, and book the difference; return whether the learner was updated."""
        done = [seat for seat in seats if seat.state == DONE]
        answers = [from_json_column(seat.answer) for seat in done if seat.answer is not None]
        judgement = judgement_of(owned, row, done, answers)
        ruled = ruled_rewards(work.history(owned.id, row.task))
        check_not_erased(owned, before, ruled)
        changed = {n: v for n, v in judgement.rewards.items() if n in ruled and row.rewards[n] != v}
        new = {n: v for n, v in judgement.rewards.items() if n not in row.rewards}
        total = None if micros is None else self._total(owned, row, before.cost, micros)
        if total is not None:
            check_room(owned, total, row.cost if row.cost is not None else row.held if row.state == OPEN else None)
        is_first = total is not None and row.cost is None and row.task not in owned.policy.unconfirmed
        work.put_seats(owned, seats)
        record = self._record(row, seats[before.seat], answers, judgement.used)
        work.record(owned, record, now, row.task)
        if answers:
            row = row._replace(answer=to_json_column(used_answer(answers, judgement.used)))
            work.put_decision(row)
        learned = False
        if new or is_first:
            learned = book(owned, work, now, row, new, total if is_first else None, by_rule=True).learned
            row, total = work.decisions[owned.id, row.task] or row, None if is_first else total
        if changed or total is not None:
            learned |= replace(owned, work, now, row, self.body.id, changed, total, by_rule=True)
        return learned

    def _total(self, owned: OwnedPolicy, row: DecisionRow, was: Micros | None, micros: Micros) -> Micros:
        """Return the cost of the task with this reviewer's cost replaced; raise if it is above the ceiling."""
        waits = owned.policy.unconfirmed.get(row.task)
        booked = waits or row.cost or {}
        total = {name: max(0, booked.get(name, 0) - (was or {}).get(name, 0)) + micro for name, micro in micros.items()}
        if owned.policy.exceeds_ceiling(micros) or (waits is not None and owned.policy.exceeds_ceiling(total)):
            raise above_ceiling()
        return total

    def _record(
        self, row: DecisionRow, seat: SeatRow, answers: Iterable[object] = (), used: int | None = None
    ) -> records.AnswerCorrectedRecord:
        return records.AnswerCorrectedRecord(
            task=row.task,
            id=row.id,
            seat=seat.seat,
            reviewer=seat.reviewer or "",
            request=self.body.id,
            answer=self.body.answer,
            cost=seat.cost,
            answers=[*answers],
            used=used,
        )


def ruled_rewards(history: Iterable[bytes]) -> set[str]:
    """Return the deciders whose rewards are those of the reward rule, from the records of a task."""
    ruled: set[str] = set()
    for body in history:
        record = records.decode(body)
        if isinstance(record, records.ObservedRecord):
            ruled |= {*record.ruled}
        elif isinstance(record, records.CorrectedRecord):
            ruled = ruled - {*record.rewards} | {*record.ruled}
    return ruled


def check_not_erased(owned: OwnedPolicy, seat: SeatRow, ruled: set[str]) -> None:
    """Raise if rewards cannot be computed again because the model's answer was erased."""
    document = owned.policy.spec.review_used
    needed = document is not None and (MODEL in ruled or (ruled and isinstance(document.reward_rule, TableRule)))
    if needed and seat.model_answer is None:
        raise conflict(f"The model's answer to task {seat.task!r} was erased: its rewards cannot be computed again.")
