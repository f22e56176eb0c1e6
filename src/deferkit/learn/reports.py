"""Reports of a learner: summary, estimates, spending, and the remark on it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deferkit.learn.core import CONSTANTS, LINKS, mean_and_weight
from deferkit.learn.encode import FREEZE_AFTER
from deferkit.learn.ledger import OPEN, Ledger
from deferkit.learn.settings import NOVEMBER_2026, Settings
from deferkit.types import MODEL, Amount, Coefficients, Drifted, MeanEstimate, Period, Scores, Summary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECENT = 200  # latest contexts that estimates are averaged over
MAX_PRODUCTS = 1_000_000  # multiplications for the errors of estimates: a fraction of a millisecond
SLOW_SHARE = 0.5  # of the planned spending: a summary has a remark if less is used
UNPRICED_SHARE = 0.1  # of a budget: a remark says if more is held for reviews whose reward came without a cost
STALLED_SHARE = 0.25  # of the planned spending: a warning is raised if less is used
CHECKS = 5  # parts of a horizon or a period after which the spending is checked
MIN_TASKS, MIN_REVIEWS = 20, 4  # decided, and planned for so far: before that a plan says little
ENDING_SHARE = 0.95  # of the planned tasks: afterwards an empty budget is as planned
NOISE_SAMPLES = 4.0  # pseudo-samples of the noise, so that a few lucky residuals are not reported as certainty
FEW_REVIEWS = 30  # an estimate from fewer is called uncertain
HORIZON, RENEWS = CONSTANTS["horizon"], CONSTANTS["renews"]
IDENTITY = LINKS.index("identity")

SILENT = frozenset({"forced", "recovering"})
"""Kinds of reasons for which no warning is raised; a kind that is the caller's own wish belongs here."""


class ResourcePlan(NamedTuple):
    """The planned and the actual use of one resource.

    Attributes:
        resource: Its number.
        elapsed: The share of the planned tasks that are decided, from 0 to 1.
        total: What is to be spent over the horizon, until the end, or in this period.
        spent: What is spent of it.
        pending: What pending reviews are expected to cost.
        seen: Tasks decided in this period, or so far.
        tasks: Tasks of the horizon, or expected in the period.
    """

    resource: int
    elapsed: float
    total: float
    spent: float
    pending: float
    seen: float
    tasks: float

    @property
    def ratio(self) -> float:
        """The share of the planned spending so far that is used or about to be."""
        planned = self.elapsed * self.total
        return (self.spent + self.pending) / planned if planned > 0.0 else math.inf

    @property
    def unspent(self) -> float:
        """The share of the budget that is not spent."""
        return max(0.0, 1.0 - self.spent / self.total)


class SpendingReason(NamedTuple):
    """Why experts are asked less than planned.

    Attributes:
        kind: "scales", "unsettled", "reserved", "left", "forced", "unavailable", "price", "estimate" or "recovering".
        reason: The reason, as the end of a sentence.
        change: What would change it, as a sentence; empty if nothing needs to.
    """

    kind: str
    reason: str
    change: str


class RecentEstimates(NamedTuple):
    """Estimates on the latest contexts: their rows [n], then means and slopes of the link [n, targets]."""

    rows: Ints
    means: Floats
    slopes: Floats


class SpendingReport:
    """Compares the spending of a learner with its plan, and explains the difference.

    Args:
        experts: The names of the experts.
        resources: The names of the resources.
        targets: The names of all rewards and costs.
        ledger: The ledger of the learner.
    """

    def __init__(
        self, experts: tuple[str, ...], resources: tuple[str, ...], targets: list[str], ledger: Ledger
    ) -> None:
        self._experts = experts
        self._resources = resources
        self._targets = targets
        self._ledger = ledger

    # ------------------------------------------------------------ estimates

    def recent(self) -> RecentEstimates:
        """Return the estimates of all targets on the latest contexts, as the price is solved with."""
        ledger, made = self._ledger, self._ledger.next_id
        n = min(RECENT, made, ledger.memory)
        if ledger.get("frozen"):  # an embedding keeps the contexts of the window up to date, and no others
            n = min(n, ledger.get("window"))
        return self.estimates_at(np.arange(made - n, made) % ledger.memory)

    def estimates_at(self, rows: Ints) -> RecentEstimates:
        """Return the estimates of all targets on the contexts in some rows of the ledger."""
        ledger, found = self._ledger, np.zeros((len(rows), self._ledger.get("n_targets")))
        ledger.core.predict_remembered(rows, found)
        slopes, k = np.ones_like(found), len(self._experts)
        for link, part in (("reward_link", slice(0, 1 + k)), ("cost_link", slice(1 + k, None))):
            if ledger.get(link) != IDENTITY:
                means, weights = mean_and_weight(ledger.get(link), found[:, part].ravel())
                shape = found[:, part].shape
                found[:, part], slopes[:, part] = means.reshape(shape), weights.reshape(shape)
        return RecentEstimates(rows, found, slopes)

    def estimates(self, recent: RecentEstimates) -> dict[str, MeanEstimate]:
        """Return the mean estimate of each target on the latest contexts, with its mean standard error."""
        if not len(recent.rows):
            return {}
        observed = self._ledger.view("n_observed").tolist()
        means, errors = recent.means.mean(axis=0).tolist(), self._errors(recent)
        return {name: MeanEstimate(*each) for name, *each in zip(self._targets, means, errors, observed, strict=True)}

    def _errors(self, recent: RecentEstimates) -> list[float]:
        """Return the mean standard errors of all targets: slope · noise · √(xᵀH⁻¹x), at most half the range."""
        ledger, deciders = self._ledger, 1 + len(self._experts)
        half = (ledger.parameter("largest_reward") - ledger.parameter("least_reward")) / 2
        seen, squares = ledger.view("n_observed").astype(np.float64), ledger.view("squared_error").copy()
        if math.isfinite(half):
            squares[:deciders] += NOISE_SAMPLES * (half**2 if ledger.get("reward_link") == IDENTITY else 1.0)
            seen[:deciders] += NOISE_SAMPLES
        noise = np.sqrt(squares / np.maximum(seen, 1.0))
        step = max(1, math.ceil(len(recent.rows) * len(seen) * ledger.get("n_features") ** 2 / MAX_PRODUCTS))
        rows, slopes = recent.rows[::step], recent.slopes[::step]
        first = ledger.get("width_member") * len(seen)
        spreads: dict[int, Floats] = {}
        for design in {ledger.core.design_of(target) for target in range(len(seen))}:
            x = ledger.view("context")[rows, ledger.view("view").item(first + design)]
            spread = ((x @ ledger.view("inverse")[first + design]) * x).sum(axis=1)
            spreads[design] = np.sqrt(np.maximum(spread, 0.0))
        errors = [
            float((slopes[:, target] * spreads[ledger.core.design_of(target)]).mean() * noise[target])
            for target in range(len(seen))
        ]
        return [min(error, half) if target < deciders else error for target, error in enumerate(errors)]

    # ------------------------------------------------------------ the plan

    def plan(self, at: float | None = None) -> ResourcePlan | None:
        """Return the plan of the limited resource that is used most of its plan; None if no resource is limited.

        Args:
            at: The time, in seconds; that of the latest decision by default.
        """
        plans = [
            self._plan_of(r, self._ledger.view("clock").item() if at is None else at) for r in self._list_limited()
        ]
        return max(plans, key=lambda plan: plan.ratio, default=None)

    def _list_limited(self) -> list[int]:
        """Return the resources with a finite budget above 0 that are in a period, where they have periods."""
        ledger = self._ledger
        total, timing, start = ledger.view("total"), ledger.view("timing"), ledger.view("period_start")[:, 0]
        limited = (total > CONSTANTS["least_budget"]) & (total < math.inf)
        return np.flatnonzero(limited & ((timing == HORIZON) | ~np.isnan(start))).tolist()

    def _plan_of(self, r: int, at: float) -> ResourcePlan:
        ledger, made = self._ledger, self._ledger.next_id
        total, spent, before, allowance = (
            ledger.view(name).item(r) for name in ("total", "spent", "spent_before", "allowance")
        )
        timing, seen = ledger.view("timing").item(r), float(made)
        if timing == HORIZON:
            tasks = ledger.view("horizon").item(r)
            elapsed = made / tasks
        else:  # by the tasks that are expected: at night a plan does not go on
            ahead, tasks = ledger.core.outlook(r, at)
            elapsed = 1.0 - ahead / max(ahead, tasks)  # after many empty periods none are expected
        if timing == RENEWS:
            total, seen = allowance, float(ledger.view("arrivals")[r].sum())
        costs, known = (ledger.view(name).item(r) for name in ("cost_sum", "cost_n"))
        pending = max(ledger.view("pending_cost").item(r), ledger.get("n_open") * costs / known if known else 0.0)
        return ResourcePlan(r, min(max(elapsed, 0.0), 1.0), max(total, 0.0), spent - before, pending, seen, tasks)

    def is_below(self, plan: ResourcePlan, share: float) -> bool:
        """Whether less than a share of the planned spending is used, once the plan is for some tasks and reviews."""
        ledger, r = self._ledger, plan.resource
        if plan.seen < MIN_TASKS or not plan.ratio < share:
            return False
        costs, known = (ledger.view(name).item(r) for name in ("cost_sum", "cost_n"))
        review = costs / known if known else self._holds()[r]
        return plan.elapsed * plan.total >= MIN_REVIEWS * review

    def _holds(self) -> list[float]:
        """Return the least hold of a review, by resource; after `obstacles`, which computes them."""
        self._ledger.core.obstacles()
        holds: list[float] = self._ledger.view("hold").reshape(len(self._experts), -1).min(axis=0).tolist()
        return holds

    # ------------------------------------------------------------ reasons

    def remark(self, recent: RecentEstimates, estimates: dict[str, MeanEstimate]) -> str:
        """Return one line that says why experts are asked less than planned; empty if they are not."""
        plan = self.plan()
        if plan is None or not self._ledger.next_id:
            return ""
        waits = bool(self._ledger.get("unsettled"))
        is_blocked = all(self._ledger.core.obstacles()) and plan.elapsed < ENDING_SHARE
        if not (waits or is_blocked or self.is_below(plan, SLOW_SHARE)):
            return self.describe_unpriced()
        return self.line(plan, self.reason(plan, recent, estimates))

    def describe_unpriced(self) -> str:
        """Return one line on reviews whose reward came without a cost, if they hold much of a budget; else nothing."""
        ledger = self._ledger
        rows = np.flatnonzero(ledger.status == OPEN)
        rows = rows[~np.isnan(ledger.reward[rows, ledger.route[rows]])]
        held = ledger.view("held")[rows].sum(axis=0)
        with np.errstate(invalid="ignore"):
            r = int(np.argmax(held / np.maximum(ledger.view("total"), CONSTANTS["least_budget"])))
        if len(rows) < MIN_REVIEWS or held[r] < UNPRICED_SHARE * ledger.view("total").item(r):
            return ""
        return (
            f"the reward of {len(rows):,} reviews came without a cost, and {self._amount(held.item(r), r)} is held for"
            " them. Report `cost` with `observe`, or `expire` them."
        )

    def line(self, plan: ResourcePlan, why: SpendingReason) -> str:
        """Return a reason as one line: how many were asked, what is unspent, why, and what would change it."""
        ledger = self._ledger
        asked = ledger.next_id - ledger.view("n_routed").item(0)
        of = "the budget of this period" if ledger.view("timing").item(plan.resource) == RENEWS else "the budget"
        head = f"asked {asked:,} of {ledger.next_id:,}; {100 * plan.unspent:.0f} % of {of} unspent"
        return f"{head}: {why.reason}.{' ' if why.change else ''}{why.change}"

    def reason(self, plan: ResourcePlan, recent: RecentEstimates, estimates: dict[str, MeanEstimate]) -> SpendingReason:
        """Return the reason why no more is spent, the most immediate one first."""
        ledger, made = self._ledger, self._ledger.next_id
        if ledger.get("unsettled"):
            n = max(ledger.get("warm_up"), FREEZE_AFTER)
            reason = f"nothing is learned before the scales of the named features are known, after {n} tasks"
            return SpendingReason("scales", reason, f"`warm_start` with {FREEZE_AFTER} past tasks gives them at once.")
        obstacles = ledger.core.obstacles()
        is_cold = ledger.get("n_open") > 0 and not ledger.view("cost_n").any()
        if all(obstacles) or is_cold:
            return self._report_blocked(is_cold or "unsettled" in obstacles)
        forced, absent = ledger.get("n_forced"), ledger.get("n_unavailable")
        if forced > made / 2:
            return SpendingReason("forced", f"the caller prescribed the route of {forced:,} tasks (`force`)", "")
        if absent > made / 2:
            reason = f"no expert was available for {absent:,} of {made:,} tasks"
            return SpendingReason("unavailable", reason, "Name more of them in `available`.")
        return self._compare(plan, recent, estimates)

    def _report_blocked(self, is_cold: bool) -> SpendingReason:
        """Return the reason that keeps every expert from being asked now, whatever it is worth."""
        ledger = self._ledger
        pending = int((ledger.status == OPEN).sum())
        reviews = "1 review" if pending == 1 else f"{pending:,} reviews"
        left, reserved = ledger.budget_left().tolist(), ledger.view("reserved").tolist()
        if is_cold:
            r = max(range(len(left)), key=lambda each: reserved[each])
            reason = f"no cost is known yet, and {self._amount(reserved[r], r)} is held for {reviews}"
            what = "cost" if np.isnan(ledger.view("known_cost")).any() else "reward"
            return SpendingReason("unsettled", reason, f"Report the `{what}` of a review with `observe`.")
        holds = self._holds()
        r = max(range(len(left)), key=lambda each: holds[each] - left[each])
        short = f"the {self._amount(left[r], r)} left is less than a review may cost ({holds[r]:.4g})"
        if reserved[r] > 0 and left[r] + reserved[r] >= holds[r]:
            reason = (
                f"{self._amount(reserved[r], r)} is reserved for {reviews} whose cost was not reported, and {short}"
            )
            return SpendingReason("reserved", reason, "Report `cost` with `observe`, or `expire` them.")
        change = "`change_budget` adds to it."
        if holds[r] > ledger.view("largest_cost").item(r):
            change = (
                'A larger total, a smaller `max_cost`, or `hold="auto"` where reviews can be stopped, would change it.'
            )
        return SpendingReason("left", short, change)

    def _amount(self, number: float, r: int) -> str:
        return f"{number:.4g}" if len(self._resources) == 1 else f"{number:.4g} {self._resources[r]}"

    def _compare(
        self, plan: ResourcePlan, recent: RecentEstimates, estimates: dict[str, MeanEstimate]
    ) -> SpendingReason:
        """Return the reason by the estimates on the latest contexts and the price."""
        ledger, k, r = self._ledger, len(self._experts), len(self._resources)
        gains = recent.means[:, 1 : 1 + k] - recent.means[:, :1]
        costs = np.maximum(recent.means[:, 1 + k :].reshape(-1, k, r), 0.0)
        worth = gains - costs @ ledger.price
        best, tasks = worth.argmax(axis=1), np.arange(len(worth))
        is_asked, is_better = worth[tasks, best] > 0.0, (gains > 0.0).any(axis=1)
        use = float((costs[tasks, best, plan.resource] * is_asked).mean())
        n, share = len(tasks), 100 * is_asked.mean()
        if use >= SLOW_SHARE * plan.total / plan.tasks:
            return SpendingReason(
                "recovering", f"on the latest {n:,} tasks asking is worth it again, in {share:.0f} %", ""
            )
        expert = max(self._experts, key=lambda name: estimates[name].mean)
        theirs, models = estimates[expert], estimates[MODEL]
        reviews = "1 review" if theirs.samples == 1 else f"{theirs.samples:,} reviews"
        name = "the expert's" if k == 1 else f"the best expert's ({expert})"
        if is_better.mean() > is_asked.mean():
            gain = float(np.where(gains > 0.0, gains, 0.0).max(axis=1)[is_better].mean())
            price = " and ".join(self._amount(each, i) for i, each in enumerate(ledger.price.tolist()))
            reason = (
                f"the price ({price} for a unit of budget) is above the gain: {name} estimate is better by {gain:.3g}"
                f" in {100 * is_better.mean():.0f} % of the latest {n:,} tasks, and worth its cost in {share:.0f} %"
            )
            return SpendingReason(
                "price", reason, "The price falls while budget is left over; a shorter horizon lowers it."
            )
        where = "" if not is_better.any() else f" in {100 - 100 * is_better.mean():.0f} % of the latest {n:,} tasks"
        below = "below" if theirs.mean < models.mean else "not above"
        reason = f"{name} estimate ({theirs} from {reviews}) is {below} the model's ({models}){where}"
        if self.boost() > 1.0:
            reason += "; it is tried nevertheless, because the budget would not be used otherwise"
        return SpendingReason("estimate", reason, self._more_reviews(theirs, models))

    def _more_reviews(self, theirs: MeanEstimate, models: MeanEstimate) -> str:
        """Return the remedy for an estimate that is below the model's."""
        ledger = self._ledger
        if not theirs.samples:
            return "Report the reward of the expert with `observe`."
        is_close = theirs.mean + 2 * theirs.error >= models.mean - 2 * models.error
        if not is_close and theirs.samples >= FEW_REVIEWS:
            return "If that is right, the budget is not needed; if not, check the reported rewards."
        ways = ["`explore_floor`"] * (ledger.parameter("floor") == 0.0) + ["a longer `warm_up`"]
        ways += ["`warm_start` with past reviews"] + ["the model's `confidence`"] * (not ledger.get("has_prior"))
        return f"More reviews would tell: {', '.join(ways[:-1])} or {ways[-1]}."

    def boost(self) -> float:
        """Return the factor of the experts' bonus by free exploration; 1 if there is none."""
        return float(self._ledger.view("dual")[-1]) if self._ledger.get("free_exploration") else 1.0


class SpendingCheck:
    """Finds out once that hardly anything is spent: after a fifth of the horizon or of a period, or a later fifth.

    A check takes place before the first decision at or after each fifth, whichever call makes it, so that a replay has
    the same state. `due` is the number of that decision, or its time where tasks have times.

    Args:
        settings: Of the learner; with the rule of November 2026 nothing is checked.
        ledger: Of the learner.
        spending: Compares spending and plan.
    """

    def __init__(self, settings: Settings, ledger: Ledger, spending: SpendingReport) -> None:
        self._ledger = ledger
        self._spending = spending
        self._is_timed = settings.is_timed
        self._unpriced_told = False
        self._applies = settings.defaults != NOVEMBER_2026
        self.due = math.inf
        self.find_next()

    def _latest(self) -> float:
        """Return the time of the latest decision, or its number."""
        return self._ledger.view("clock").item() if self._is_timed else float(self._ledger.next_id - 1)

    def find_next(self) -> None:
        """Note when the next check is due; after a change of a budget."""
        self._find_after(self._latest())

    def _find_after(self, position: float) -> None:
        ledger, self.due = self._ledger, math.inf
        if self._applies and not ledger.get("spending_told"):
            ends = ledger.view("period_end")[ledger.view("timing") != HORIZON].tolist()  # where other periods begin
            later = [each for each in (*self._marks(), *ends) if each > position]
            self.due = -math.inf if any(map(math.isnan, ends)) else min(later, default=math.inf)

    def _marks(self) -> list[float]:
        """Return the decisions or times at which spending is checked."""
        ledger = self._ledger
        if not self._is_timed:
            horizon = ledger.view("horizon")[np.isfinite(ledger.view("total"))].min(initial=math.inf).item()
            spans = [(0.0, horizon)] * (horizon < math.inf)
            return [math.ceil(i * end / CHECKS) for _, end in spans for i in range(1, CHECKS)]
        starts, ends = ledger.view("period_start")[:, 0].tolist(), ledger.view("period_end").tolist()
        spans = [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
        return [start + i * (end - start) / CHECKS for start, end in spans for i in range(1, CHECKS)]

    def tasks_before(self, times: Floats, n: int) -> int:
        """Return the number of the next n tasks before the next check, which comes after the first of them."""
        if self._is_timed:
            late = times >= self.due
            return int(late.argmax()) if late.any() else n
        return min(n, int(min(self.due - self._ledger.next_id, n)))

    def check(self, at: float | None) -> str:
        """Check before a decision at a time, when that is due; return a line if hardly anything is spent."""
        ledger, spending = self._ledger, self._spending
        latest, position, found = self._latest(), float(ledger.next_id) if at is None else at, ""
        plan = spending.plan(at) if any(latest < mark <= position for mark in self._marks()) else None
        if plan is not None and spending.is_below(plan, STALLED_SHARE):
            recent = spending.recent()
            why = spending.reason(plan, recent, spending.estimates(recent))
            if why.kind not in SILENT:
                ledger.set("spending_told", 1)
                found = spending.line(plan, why)
        self._find_after(max(position, latest))
        return found

    def check_unpriced(self) -> str:
        """Return, the first time, a line on reviews whose reward came without a cost; not a part of the state."""
        line = "" if self._unpriced_told else self._spending.describe_unpriced()
        self._unpriced_told = self._unpriced_told or bool(line)
        return line


TINY_WEIGHT = 1e-300  # a sum of weights that is not divided by


class LedgerReader:
    """Reads a ledger, with the names of experts and resources.

    Args:
        settings: Of the learner.
        ledger: The ledger to read.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.experts, self.deciders, self.resources = settings.experts, settings.deciders, settings.resources
        self.n_features = settings.n_features
        self.view_names = settings.kind.view_names(settings.shape)
        self.ledger = ledger
        self.spending = SpendingReport(self.experts, self.resources, self.targets, ledger)

    @property
    def targets(self) -> list[str]:
        """The names of all targets: the rewards of the deciders, then the costs of the experts."""
        each = [""] if len(self.resources) == 1 else [f" in {name}" for name in self.resources]
        return [*self.deciders, *(f"cost of {expert}{suffix}" for expert in self.experts for suffix in each)]

    def amount(self, numbers: Sequence[float]) -> Amount:
        """Return numbers by resource as an amount."""
        return numbers[0] if len(self.resources) == 1 else dict(zip(self.resources, numbers, strict=True))

    def scores(self, matrix: Floats) -> Scores:
        """Return the scores of contexts, given as views [n, views · width]."""
        n, k, r = len(matrix), len(self.experts), len(self.resources)
        routes = np.zeros(n, dtype=np.int64)
        estimates, widths = np.zeros((n, len(self.targets))), np.zeros((n, len(self.targets)))
        price = np.full(r, np.nan)
        self.ledger.core.score_many(matrix, routes, estimates, widths, price)
        costs, cost_widths = (each[:, 1 + k :].reshape(-1, k, r) for each in (estimates, widths))
        return Scores(
            routes=np.array(self.deciders)[routes],
            estimates={name: estimates[:, i] for i, name in enumerate(self.deciders)},
            widths={name: widths[:, i] for i, name in enumerate(self.deciders)},
            costs={name: costs[:, i] for i, name in enumerate(self.experts)},
            cost_widths={name: cost_widths[:, i] for i, name in enumerate(self.experts)},
            price=self.amount(price.tolist()),
        )

    def coefficients(self) -> dict[str, Coefficients]:
        """Return the coefficients of each target, averaged over the members; the inverse is that of the first one.

        Members that read ranks are left out, since their coefficients are of something else.
        """
        weights, theta = self.ledger.view("member_weight"), self._by_member(self.ledger.view("theta"))
        inverse, views = self.ledger.view("inverse"), self.ledger.view("view")
        if self.ledger.get("n_ranked"):
            given = self.ledger.get("n_given")
            reads_values = self._by_member(views)[:, 0] < self.ledger.get("n_views") - 1
            if reads_values.any():
                weights, theta = weights[:, reads_values], theta[reads_values]
            weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY_WEIGHT)
            theta, inverse = theta[..., :given], inverse[:, :given, :given]
        found = {}
        for target, name in enumerate(self.targets):
            width = inverse[self.ledger.core.design_of(target)].copy()
            if self.ledger.get("n_lasting") > views[target] + 1:  # the first member does not read the columns of trees
                width[self.n_features :] = 0.0
                width[:, self.n_features :] = 0.0
            found[name] = Coefficients(np.tensordot(weights[target], theta[:, target], axes=1), width)
        return found

    def _by_member(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array [member · target, …] as [member, target, …]."""
        return array.reshape(-1, len(self.targets), *array.shape[1:])

    def samples_in_use(self) -> dict[str, float]:
        """Return the effective number of samples of each target: fewer than observed if its members forget."""
        samples = self._by_member(self.ledger.view("member_samples"))
        used = (self.ledger.view("member_weight") * samples.T).sum(axis=1)
        return dict(zip(self.targets, used.tolist(), strict=True))

    def representation_shares(self) -> dict[str, dict[str, float]]:
        """Return the weight of each view of the context in the estimate of each target."""
        views, weights = self._by_member(self.ledger.view("view"))[:, 0], self.ledger.view("member_weight")
        names = (*self.view_names, "ranks") if self.ledger.get("n_ranked") else self.view_names
        return {
            target: {name: float(weights[i, views == view].sum()) for view, name in enumerate(names)}
            for i, target in enumerate(self.targets)
        }

    def drifts(self) -> tuple[Drifted, ...]:
        """Return the latest drift of each target that has drifted, in the order of detection."""
        found = []
        for i, target in enumerate(self.targets):
            count, at, strength, since = (
                self.ledger.view(name).item(i) for name in ("n_drifts", "drift_at", "drift_strength", "drift_since")
            )
            if count:
                tested = (since, *self._change_of(i)) if self.ledger.get("drift_test") else ()
                found.append(Drifted(target, at, strength, count, *tested))
        return tuple(sorted(found, key=lambda drift: drift.decision))

    def _change_of(self, target: int) -> tuple[float | None, float | None, float | None]:
        """Return the mean response before and after the last drift of a target, and the error of their difference."""
        means, variance = [], 0.0
        for n, total, squares in self.ledger.view("drift_sums")[target].reshape(2, 3).tolist():
            if n < 2:
                return None, None, None
            means.append(total / n)
            variance += max(0.0, squares / n - means[-1] ** 2) / (n - 1)
        return means[0], means[1], math.sqrt(variance)

    def periods(self) -> dict[str, Period]:
        """Return the current period of each resource that has begun one."""
        ledger, found = self.ledger, {}
        for r, name in enumerate(self.resources):
            start, end, total, spent, before = (
                ledger.view(each).reshape(len(self.resources), -1).item(r, 0)
                for each in ("period_start", "period_end", "total", "spent", "spent_before")
            )
            if not math.isnan(start):
                ahead, _ = ledger.core.outlook(r, ledger.view("clock").item())
                found[name] = Period(start, end, total - before, spent - before, ahead)
        return found

    def summary(self) -> Summary:
        """Return counts, budget, price, noise and estimates, and a remark if experts are asked less than planned."""
        recent = self.spending.recent()
        estimates = self.spending.estimates(recent)
        return self.figures()._replace(estimates=estimates, remark=self.spending.remark(recent, estimates))

    def figures(self) -> Summary:
        """Return the summary without estimates and remark, which take most of its time."""
        ledger = self.ledger
        routed = ledger.view("n_routed").tolist()
        made = ledger.next_id
        noise = np.sqrt(ledger.view("squared_error") / np.maximum(ledger.view("n_observed"), 1)).tolist()
        kept = sum(ledger.view(name).nbytes for name in ("context", "held", "reward", "cost"))
        totals, spent, reserved, overrun = (
            self.amount(ledger.view(name).tolist()) for name in ("total", "spent", "reserved", "overrun")
        )
        return Summary(
            decisions=made,
            routes=dict(zip(self.deciders, routed, strict=True)),
            deferral_rate=1 - routed[0] / made if made else 0.0,
            total=totals,
            spent=spent,
            reserved=reserved,
            left=self.amount(ledger.budget_left().tolist()),
            overrun=overrun,
            price=self.amount(ledger.price.tolist()),
            pending=int((ledger.status == OPEN).sum()),
            expired=ledger.get("n_expired"),
            forced=ledger.get("n_forced"),
            without_budget=ledger.get("n_no_budget"),
            noise=dict(zip(self.targets, noise, strict=True)),
            samples=dict(zip(self.targets, ledger.view("n_observed").tolist(), strict=True)),
            samples_in_use=self.samples_in_use(),
            drifts=int(ledger.view("n_drifts").sum()),
            history_bytes=kept + ledger.samples.nbytes,
            stopped=ledger.get("n_stopped"),
            backwards=ledger.get("n_backwards"),
            periods=self.periods(),
        )
