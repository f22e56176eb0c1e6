"""What the service must come to, in plain Python: one thread, no database, no learner, no group, no log.

Money is not moved about but counted anew each time: what is reserved is the sum over tasks that are open, what is
booked the sum of all costs and efforts; as much of that is posted as there is room, the rest stands in suspense.
"""

from dataclasses import dataclass, field

from deferkit.serve.domain.accounts import Account

Lease = tuple[str, int, int]  # task, seat, epoch
MODEL_LABEL = "a"


@dataclass
class Seat:
    """A reviewer's place."""

    state: str = "waiting"
    epoch: int = 0
    reviewer: str | None = None
    lease_until: int = 0
    label: str = ""
    why: str = ""
    rewards: dict[str, float] = field(default_factory=dict)
    cost: int | None = None


@dataclass
class Task:
    """A task that was decided."""

    route: str
    state: str  # of its money: model, open, posted, void
    held: int
    priority: float
    created: int
    deadline: int
    seats: list[Seat]
    rewards: dict[str, float] = field(default_factory=dict)
    cost: int | None = None
    final: str | None = None
    ruled: set[str] = field(default_factory=set)  # whose rewards are those of the reward rule
    answer: tuple[str, str] | None = None  # label and reason of the answer that is used
    events: list[str] = field(default_factory=list)  # that webhooks are told of


class Refused(Exception):
    """What is asked for contradicts what is known."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def averages(seats: list[Seat]) -> dict[str, float]:
    """Return the rewards that reviewers have reported, averaged."""
    given = {who: [s.rewards[who] for s in seats if who in s.rewards] for who in ("model", "human")}
    return {who: sum(values) / len(values) for who, values in given.items() if values}


def ruled(seats: list[Seat]) -> dict[str, float]:
    """Return the rewards of the reward rule: who gave the label that most reviewers gave is right."""
    if not seats:
        return {}
    labels = [seat.label for seat in seats]
    final = max(labels, key=labels.count)  # the first of those that are even
    return {"human": labels.count(final) / len(labels), "model": float(final == MODEL_LABEL)}


def used(seats: list[Seat]) -> tuple[str, str] | None:
    """Return the answer that is used: the first one with the label that most reviewers gave."""
    labels = [seat.label for seat in seats]
    if not labels:
        return None
    seat = seats[labels.index(max(labels, key=labels.count))]
    return seat.label, seat.why


class Model:
    """The money and the queue of one policy."""

    def __init__(self, total: int, *, lease: int, deadline: int) -> None:
        self.total = total
        self.lease = lease
        self.deadline = deadline
        self.tasks: dict[str, Task] = {}
        self.parked: dict[str, tuple[dict[str, float], int | None]] = {}
        self.efforts: dict[Lease, int | None] = {}  # for each claim there ever was
        self.declined: dict[Lease, tuple[str, str]] = {}  # the task and who did not want it

    @property
    def account(self) -> Account:
        """Where the money is."""
        reserved = sum(task.held for task in self.tasks.values() if task.state == "open")
        booked = sum(task.cost or 0 for task in self.tasks.values()) + sum(e or 0 for e in self.efforts.values())
        posted = min(booked, self.total - reserved)
        return Account(self.total, reserved, posted, booked - posted)

    def fits(self, amount: int) -> bool:
        """Whether so much can be reserved."""
        account = self.account
        return account.suspense == 0 and amount <= self.total - account.reserved - account.posted

    def decide(self, name: str, route: str, held: int, seats: int, priority: float, now: int) -> None:
        """A task was decided."""
        asked = route != "model"
        self.tasks[name] = Task(
            route=route,
            state="open" if asked else "model",
            held=held if asked else 0,
            priority=priority,
            created=now,
            deadline=now + self.deadline,
            seats=[Seat() for _ in range(seats if asked else 0)],
            final=None if asked else "model",
            events=["decided"] if asked else [],
        )
        if name in self.parked:
            rewards, cost = self.parked.pop(name)
            self.book(name, rewards, cost if asked else None)  # the model costs nothing

    def observe(self, name: str, rewards: dict[str, float], cost: int | None) -> int:
        """Return the status that an outcome gets."""
        if not rewards and cost is None:
            raise Refused(422)
        if name in self.tasks:
            if self.tasks[name].route == "model" and self.tasks[name].cost is None and cost:
                raise Refused(422)
            self.book(name, rewards, cost)
            return 200
        known, before = self.parked.get(name, ({}, None))
        if any(known.get(who, value) != value for who, value in rewards.items()):
            raise Refused(409)
        if None not in (before, cost) and before != cost:
            raise Refused(409)
        self.parked[name] = (known | rewards, cost if before is None else before)
        return 202

    def book(self, name: str, rewards: dict[str, float], cost: int | None, ends: bool = False) -> None:
        """Something became known of a task; what ends it settles what its reviewers have reported by then."""
        task = self.tasks[name]
        done = [seat for seat in task.seats if seat.state == "done"]
        if any(task.rewards.get(who, value) != value for who, value in rewards.items()):
            raise Refused(409)
        own = sum(seat.cost or 0 for seat in done)
        if None not in (task.cost, cost) and task.cost not in (cost, own + (cost or 0)):
            raise Refused(409)
        if task.cost is not None or (task.route == "model" and cost == 0):
            cost = None
        named = task.route in rewards and task.route not in task.rewards
        ends = ends or (task.final is None and (cost is not None or named))
        task.rewards |= rewards
        if ends:
            known = averages(done) | task.rewards
            task.ruled |= set(ruled(done)) - set(known)
            task.rewards = ruled(done) | known
            costs = [each for each in [cost, *(seat.cost for seat in done)] if each is not None]
            cost = sum(costs) if costs else None
            task.events += ["completed"] if task.final is None else []
            task.final = task.route
            task.answer = used(done) or task.answer
            self.close(task)
        if cost is not None:
            task.cost = cost
            task.state = task.state if task.state == "model" else "posted"

    def close(self, task: Task) -> None:
        """Nobody is asked any more."""
        for seat in task.seats:
            seat.state = "closed" if seat.state in ("waiting", "claimed") else seat.state

    def correct(self, name: str, rewards: dict[str, float], cost: int | None) -> None:
        """Values are replaced."""
        if name not in self.tasks:
            raise Refused(404)
        task = self.tasks[name]
        if not set(rewards) <= set(task.rewards) or (cost is not None and task.cost is None):
            raise Refused(409)
        task.rewards |= rewards
        task.ruled -= set(rewards)
        task.cost = task.cost if cost is None else cost

    def correct_answer(self, lease: Lease, label: str, why: str, cost: int | None) -> None:
        """A reviewer replaces the own answer, and what it has cost unless that is None."""
        if lease not in self.efforts:
            raise Refused(404)
        task = self.tasks[lease[0]]
        seat = task.seats[lease[1]]
        if seat.state != "done" or seat.epoch != lease[2]:
            raise Refused(409)
        before = seat.cost or 0
        seat.label, seat.why, seat.cost = label, why, seat.cost if cost is None else cost
        if task.final is None:
            return
        done = [each for each in task.seats if each.state == "done"]
        task.answer = used(done)
        for who, reward in ruled(done).items():
            if who in task.ruled or who not in task.rewards:
                task.rewards[who] = reward
                task.ruled.add(who)
        if cost is not None:
            task.cost = max(0, (task.cost or 0) - before) + cost
            task.state = "posted"

    def expire(self, name: str) -> None:
        """A task waits no longer."""
        if name not in self.tasks:
            raise Refused(404)
        task = self.tasks[name]
        if task.state == "void":
            return
        if task.state != "open":
            raise Refused(409)
        if task.final is None and any(seat.state == "done" for seat in task.seats):
            self.book(name, {}, None, ends=True)
        if task.state == "posted":
            return
        task.state = "void"
        task.final = task.final or "model"
        task.events.append("expired")
        self.close(task)

    def overdue(self, now: int) -> list[str]:
        """Return the tasks that hold budget beyond their deadline."""
        return [name for name, task in self.tasks.items() if task.deadline < now and task.state == "open"]

    def claimable(self, reviewer: str, now: int) -> set[tuple[str, int]]:
        """Return the seats that are worth most of those that the reviewer may have."""
        found: dict[tuple[float, int], set[tuple[str, int]]] = {}
        for name, task in self.tasks.items():
            for number, seat in enumerate(task.seats):
                free = seat.state == "waiting" or (seat.state == "claimed" and seat.lease_until < now)
                others = [each for each in task.seats if each is not seat]
                sits = any(each.reviewer == reviewer and each.state in ("done", "claimed") for each in others)
                wanted = (name, reviewer) not in self.declined.values()
                if free and wanted and not sits and task.deadline >= now:
                    found.setdefault((-task.priority, task.created), set()).add((name, number))
        return found[min(found)] if found else set()

    def claim(self, name: str, number: int, reviewer: str, now: int) -> int:
        """A reviewer takes a seat; return the epoch."""
        seat = self.tasks[name].seats[number]
        seat.state, seat.epoch, seat.reviewer, seat.cost = "claimed", seat.epoch + 1, reviewer, None
        seat.lease_until = now + self.lease
        self.efforts[name, number, seat.epoch] = None
        return seat.epoch

    def held(self, lease: Lease) -> Seat:
        """Return the seat of a claim that is in force."""
        name, number, epoch = lease
        seat = self.tasks[name].seats[number]
        if seat.state != "claimed" or seat.epoch != epoch:
            raise Refused(409)
        return seat

    def extend(self, lease: Lease, now: int) -> None:
        """A reviewer needs more time."""
        self.held(lease).lease_until = now + self.lease

    def release(self, lease: Lease) -> None:
        """A reviewer gives a seat back."""
        seat = self.held(lease)
        seat.state, seat.reviewer = "waiting", None

    def decline(self, lease: Lease) -> None:
        """A reviewer gives a seat back for good."""
        if lease not in self.declined:
            reviewer = self.held(lease).reviewer or ""
            self.release(lease)
            self.declined[lease] = (lease[0], reviewer)

    def resume(self, lease: Lease, reviewer: str, now: int) -> None:
        """A reviewer has lost the token of a claim."""
        seat = self.tasks[lease[0]].seats[lease[1]]
        if seat.state != "claimed" or seat.reviewer != reviewer:
            raise Refused(409)
        seat.lease_until = now + self.lease

    def queue(self) -> list[tuple[str, int]]:
        """Return the seats that wait or are claimed, in the order in which they are offered."""
        found = [
            (-task.priority, task.created, name, number)
            for name, task in self.tasks.items()
            for number, seat in enumerate(task.seats)
            if seat.state in ("waiting", "claimed")
        ]
        return [(name, number) for _, _, name, number in sorted(found)]

    def complete(
        self, lease: Lease, label: str, why: str, rewards: dict[str, float], cost: int | None, now: int
    ) -> None:
        """A reviewer answers."""
        seat = self.held(lease)
        task = self.tasks[lease[0]]
        if task.deadline < now:
            raise Refused(409)
        if any(task.rewards.get(who, value) != value for who, value in rewards.items()):
            raise Refused(409)
        seat.state, seat.label, seat.why, seat.rewards, seat.cost = "done", label, why, rewards, cost
        if all(each.state == "done" for each in task.seats):
            self.book(lease[0], {}, None, ends=True)

    def effort(self, lease: Lease, cost: int) -> None:
        """Work that came to nothing is paid, once."""
        if lease not in self.efforts:
            raise Refused(404)
        seat = self.tasks[lease[0]].seats[lease[1]]
        if (seat.epoch == lease[2] and seat.state in ("claimed", "done")) or self.efforts[lease] not in (None, cost):
            raise Refused(409)
        self.efforts[lease] = cost

    def change(self, total: int) -> None:
        """The total is another one from now on."""
        if total < self.account.reserved + self.account.posted:
            raise Refused(409)
        self.total = total

    def restarted(self, now: int) -> None:
        """Nobody could extend a lease for a while."""
        for task in self.tasks.values():
            for seat in task.seats:
                if seat.state == "claimed":
                    seat.lease_until = max(seat.lease_until, now + self.lease)
