"""Corrections of reviewers' answers: rewards and costs that follow from them are computed and booked again."""

from collections.abc import Iterable

import msgspec

from deferkit.serve.domain import log_records
from deferkit.serve.domain.money import Micros, all_in_reply
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.domain.problems import conflict, unknown
from deferkit.serve.domain.reply import Reply
from deferkit.serve.domain.request_bodies import AnswerCorrectionBody, digest
from deferkit.serve.domain.reward_rule import TableRule
from deferkit.serve.domain.rows import DONE, OPEN, ClaimRow, DecisionRow, RequestRow, SeatRow
from deferkit.serve.domain.seats import check_token, claim_of, sum_costs
from deferkit.serve.engine.commands.correction import above_ceiling, replace
from deferkit.serve.engine.commands.idempotency import idempotent_reply
from deferkit.serve.engine.commands.outcome import book, judgement_of, used_answer
from deferkit.serve.engine.commands.reported_values import check_room, cost_of
from deferkit.serve.engine.commands.review import check_form
from deferkit.serve.engine.unit_of_work import UnitOfWork
from deferkit.serve.storage.row_codec import from_json_column, to_json_column
from deferkit.serve.storage.transaction import ReadSet
from deferkit.types import MODEL


class AnswerCorrectionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a corrected answer."""

    task: str
    seat: int
    finished: bool  # the task has ended, so that rewards and cost were corrected too
    learned: bool
    rewards: dict[str, float]  # of the task
    cost: float | dict[str, float] | None  # of the task, where it is booked


class CorrectAnswer:
    """Replace an answer; once for each id.

    Parameters
    ----------
    body
        The claim and the answer that replaces the one before.
    bound
        The only reviewer that the caller may act for; None (default): any.
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
        row, seats = self._completed(owned, work, claim)
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

    def _completed(
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
        """Judge the answers of an ended task again, and book the difference; return whether the learner was told."""
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
    ) -> log_records.AnswerCorrectedRecord:
        return log_records.AnswerCorrectedRecord(
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
        record = log_records.decode(body)
        if isinstance(record, log_records.ObservedRecord):
            ruled |= {*record.ruled}
        elif isinstance(record, log_records.CorrectedRecord):
            ruled = ruled - {*record.rewards} | {*record.ruled}
    return ruled


def check_not_erased(owned: OwnedPolicy, seat: SeatRow, ruled: set[str]) -> None:
    """Raise if rewards cannot be computed again, because the model's answer was erased since."""
    document = owned.policy.spec.review_used
    needed = document is not None and (MODEL in ruled or (ruled and isinstance(document.reward_rule, TableRule)))
    if needed and seat.model_answer is None:
        raise conflict(f"The model's answer to task {seat.task!r} was erased: its rewards cannot be computed again.")
