"""The layout of a learner's state: every field, declared once for Python and for the compiled core.

`setup.py` writes the C structs (`state.pxd`) from these tables, and `core/__init__.py` checks at import, field by
field, that the extension module was built from the same ones. Only the standard library is imported here, because the
build reads this file before anything is installed.
"""

import math
from typing import NamedTuple

N_LANES = 4  # doubles in a vector instruction; `kernels.h` has the same number
STASH = 16  # contexts that are added to a precision matrix together; `kernels.h` has the same number


class Scalar(NamedTuple):
    """One number: its name and its meaning."""

    name: str
    meaning: str


class Array(NamedTuple):
    """An array: its name, C type, shape in the letters of `shapes`, and meaning."""

    name: str
    kind: str
    shape: str
    meaning: str


SIZES = (
    Scalar("n_features", "d, the length of the view that an estimate reads"),
    Scalar("stride", "d, padded with zeros to whole lanes"),
    Scalar("n_experts", "K"),
    Scalar("n_resources", "R"),
    Scalar("n_targets", "G = 1 + K + K·R: rewards of the deciders, then costs by expert and resource"),
    Scalar("n_members", "N, members of the mixture, which forget at different rates; 1 if nothing is forgotten"),
    Scalar("n_lasting", "members that forget nothing, one for each view"),
    Scalar("n_views", "V, views of a context: itself, with the columns of a representation, its ranks (last)"),
    Scalar("n_given", "length of a view as callers give it; the rest of a view is 0"),
    Scalar("n_ranked", "J, features in the rank view; 0: there is no rank view"),
    Scalar("memory", "remembered decisions: the length of the ring"),
    Scalar("overflow", "overflow rows, for older decisions that still hold budget"),
    Scalar("window", "latest contexts that the price may be solved for, rounded up to whole lanes"),
    Scalar("n_dual", "length of the dual: prices, memory of the pacing; then solved prices and arrears, and the boost"),
    Scalar("n_pacing", "constants of the pacing"),
)

OPTIONS = (
    Scalar("reward_link", "code of the link, see links.pxd"),
    Scalar("cost_link", "code of the link"),
    Scalar("pacing", "code of the pacing, see pacing.pxd"),
    Scalar("refit", "when an estimate is refitted exactly, see refit.pxd"),
    Scalar("refit_limit", "samples up to which an estimate is refitted"),
    Scalar("printed_costs", "1: optimistic costs exactly as printed in the paper"),
    Scalar("fisher", "1: samples have the weight μ'; 0: 1, as in the paper's M"),
    Scalar("one_index", "1: price and decision use one index, see index.pxd; 0: ends of intervals, prices on means"),
    Scalar("sampled", "1: values are drawn around the estimates (Thompson sampling)"),
    Scalar("frozen", "1: estimates and designs change at a retraining of the embedding only"),
    Scalar("width_member", "member whose spreads are the widths"),
    Scalar("has_prior", "1: the ridge pulls to prior_theta; 0: to 0"),
    Scalar("free_exploration", "1: the bonus of experts grows while budget would be left over, see explore.pxd"),
    Scalar("catches_up", "1: prices fall while spending is far behind an even pace, see arrears.pxd"),
    Scalar("drift_test", "1: drifts are reported by a test martingale, see drift.pxd; 0: by weights"),
    Scalar("joint", "1: several experts are explored jointly: what one shows says something of the others"),
    Scalar("key", "of the random stream"),
)

COUNTERS = (
    Scalar("warm_up", "random decisions at the start"),
    Scalar("next_id", "number of the next decision"),
    Scalar("slot", "row of the ring for the next decision: next_id modulo memory"),
    Scalar("price_due", "1: the price has not yet moved for the last decision"),
    Scalar("n_model_seen", "tasks that the model decided whose model reward became known"),
    Scalar("n_model_due", "tasks that the model decided before `heard_to`"),
    Scalar("heard_to", "1 + number of the latest decision with an observation, or for which one is overdue"),
    Scalar("n_heard", "observations with a new value that `delay_sum` is of"),
    Scalar("delay_sum", "sum of their delays, in decisions"),
    Scalar("n_forced", "decisions that the caller prescribed"),
    Scalar("n_no_budget", "decisions that went to the model because no budget was left"),
    Scalar("n_expired", "decisions that expired"),
    Scalar("n_open", "open decisions: reviews whose cost is not known"),
    Scalar("n_stopped", "reviews that were stopped"),
    Scalar("n_backwards", "decisions whose time was before that of an earlier one"),
    Scalar("horizon_told", "1: the end of the horizon was reported"),
    Scalar("spending_told", "1: a spending far below the plan was reported"),
    Scalar("n_unavailable", "decisions that went to the model because no expert was available"),
    Scalar("unsettled", "1: the encoder's scales are not frozen yet, so nothing is learned"),
    Scalar("n_seen", "observations with a new value"),
    Scalar("retrain_at", "value of `n_seen` at which a representation is fitted next"),
    Scalar("capacity", "samples for exact refits that can be stored, for each refitted target"),
    Scalar("link_state", "0: the reward link is fixed; 1: logistic while rewards are 0 or 1; 2: it was, now identity"),
    Scalar("n_in_ranks", "contexts in the rank tables, at most 100: then they are frozen"),
    Scalar("repair_due", "1: an inverse must be recomputed or a refit is due"),
)

PARAMETERS = (
    Scalar("ridge", "λ of the ridge"),
    Scalar("scale", "width of an interval in units of the noise"),
    Scalar("noise", "σ; NaN: estimated"),
    Scalar("delta", "δ of the printed β(t); NaN: the width does not grow with t"),
    Scalar("kappa", "κ of the printed β(t)"),
    Scalar("floor", "share of random decisions for off-policy evaluation"),
    Scalar("prior", "size of an unknown coefficient, in units of the root mean square reward"),
    Scalar("least_reward", "lower bound of rewards"),
    Scalar("largest_reward", "upper bound of rewards"),
    Scalar("model_share", "share of the model's bonus where choosing the model reveals its reward"),
    Scalar("noise_samples", "pseudo-samples of the noise prior; 0: none"),
    Scalar("noise_variance", "variance of a pseudo-sample, in the units of squared_error"),
    Scalar("rank_length", "length of the constant in the rank view"),
    Scalar("intercept", "constant behind the given features of a context, where there is room; 0: none"),
    Scalar("dimension", "number of features that a width is about: not indicators, nor columns of trees"),
    Scalar("identity_ridge", "ridge after the switch to the identity link"),
    Scalar("identity_scale", "scale after the switch to the identity link"),
    Scalar("identity_variance", "noise_variance after the switch to the identity link"),
)

STATE = (
    Array("total", "double", "R", "budget"),
    Array("horizon", "double", "R", "number of tasks that the budget must last for"),
    Array("max_cost", "double", "R", "NaN: not given"),
    Array("spent", "double", "R", "sum of the booked costs, without overruns"),
    Array("reserved", "double", "R", "sum of the holds of open decisions"),
    Array("overrun", "double", "R", "cost that did not fit the budget"),
    Array("uncovered", "double", "R", "the part of it above max_cost, which free budget covers first"),
    Array("largest_cost", "double", "R", "seen so far"),
    Array("cost_sum", "double", "R", "of all costs seen"),
    Array("cost_n", "double", "R", "number of costs seen"),
    Array("timing", "Int", "R", "what the budget is paced over, see arrivals.pxd"),
    Array("allowance", "double", "R", "what a renewal brings"),
    Array("carry", "double", "R", "most that is carried over at a renewal, in allowances"),
    Array("period_start", "double", "R 3", "start of this period and of the two before it; NaN: there was none"),
    Array("period_end", "double", "R", "end of this period; NaN: no task came yet, or the budget has a horizon"),
    Array("spent_before", "double", "R", "spent when this period began"),
    Array("bin_length", "double", "R", "seconds of a bin of the arrivals"),
    Array(
        "arrivals", "double", "R 168", "tasks in each bin of this period; of the last 168 bins if it has a fixed end"
    ),
    Array("past_arrivals", "double", "R 168", "tasks in each bin of the periods before, discounted"),
    Array("past_periods", "double", "R", "number of the periods before, discounted likewise"),
    Array("clock", "double", "1", "time of the latest decision"),
    Array("hold_fixed", "double", "R", "hold of a review that can be stopped; NaN: not given"),
    Array("hold_means", "double", "R", "the same in units of the mean cost; NaN: not given"),
    Array("limit", "double", "R", "cost at which reviews are stopped; NaN: none"),
    Array("pending_cost", "double", "R", "expected cost of open decisions"),
    Array("owed", "double", "R", "expected cost of the last decision, for the price"),
    Array("dual", "double", "D", "prices, then the memory of the pacing"),
    Array("pacing_constant", "double", "P", "of the pacing"),
    Array("n_routed", "Int", "A", "decisions by decider"),
    Array("member_prior", "double", "N", "weight of a member before any observation"),
    Array("forget_every", "Int", "N", "samples of a design between two discounts of a member; 0: never"),
    Array("keep", "double", "N", "factor of a discount"),
    Array("member_weight", "double", "G N", "of each member in the estimate of a target; they add up to 1"),
    Array("member_samples", "double", "E", "effective samples of a member: discounted as it forgets"),
    Array("forecast_error", "double", "G", "Σ of squared one-step-ahead errors of the mixture"),
    Array("drift_told", "Int", "G", "1: a drift of a target was reported and is not over"),
    Array("n_drifts", "Int", "G", "drifts that were reported"),
    Array("drift_at", "Int", "G", "number of the next decision when the last drift was reported"),
    Array("drift_strength", "double", "G", "share of the samples of a target that was out of use then"),
    Array("evidence", "double", "G", "test martingale of a drift"),
    Array("change_score", "double", "G", "log-likelihood ratio since the most likely change point"),
    Array("change_at", "Int", "G", "number of the next decision at the most likely change point"),
    Array("change_sums", "double", "G 6", "samples, Σ y, Σ y² before the change point and since"),
    Array("drift_since", "Int", "G", "change point of the last reported drift"),
    Array("drift_resumes", "Int", "G", "samples of a target at which the test for drift resumes"),
    Array("drift_sums", "double", "G 6", "change_sums when the last drift was reported"),
    Array("rank_table", "double", "J 100", "sorted values of each feature in the first contexts"),
    Array("rank_count", "Int", "J", "values in each row of the rank table: missing ones are not counted"),
    Array("view", "Int", "E", "view that an estimate reads"),
    Array("shares_design", "Int", "K", "1: costs of this expert use the design of its reward"),
    Array("theta", "double", "E d", "coefficients"),
    Array("moment", "double", "E d", "Σ y·x"),
    Array("squared_error", "double", "G", "Σ of squared, scaled prediction errors"),
    Array("n_observed", "Int", "G", "samples of a target"),
    Array("next_refit", "Int", "G", "number of samples at which the next exact refit is due"),
    Array("reward_power", "double", "2", "Σ y² of all rewards, and their number"),
    Array("context_power", "double", "2", "Σ ‖x‖² of all decisions, and their number"),
    Array("inverse", "double", "E d d", "of the precision matrix, including the stashed contexts"),
    Array("precision", "double", "E d d", "its lower half, without the stashed contexts"),
    Array("rounding", "double", "E d d", "rounding errors of the precision (Kahan)"),
    Array("stash", "double", "E S d", "contexts not yet added to the precision"),
    Array("n_stashed", "Int", "E", "number of stashed contexts"),
    Array("n_absorbed", "Int", "E", "number of samples of a design"),
    Array("drifted", "Int", "E", "1: the inverse has lost precision and must be recomputed"),
    Array("context", "double", "M V d", "of each remembered decision"),
    Array("past_width", "double", "M A", "√(xᵀH⁻¹x·(samples + d)) of each reward at the time"),
    Array(
        "learned_as",
        "Int",
        "M B",
        "sample number, in its design, of each reward and of the cost; 0: not learned",
    ),
    Array("at", "double", "M", "time of the decision; 0 if no budget has an end or a period"),
    Array("expected", "double", "M R", "expected cost of the decision while it is open"),
    Array("held", "double", "M R", "hold: reserved for the decision"),
    Array("reward", "double", "M A", "NaN: not known"),
    Array("cost", "double", "M R", "NaN: not known"),
    Array("route", "Int", "M", "0: the model"),
    Array("status", "Int", "M", "see accounting.pxd"),
    Array("announced", "Int", "M", "1: the cost was known before the decision, and is booked with the expert's reward"),
)

SCRATCH = (
    Array("x", "double", "V d", "current context"),
    Array("raw", "double", "J", "current context before outliers are cut"),
    Array("product", "double", "E d", "inverse · x"),
    Array("spread", "double", "E", "xᵀ · inverse · x"),
    Array("predictor", "double", "E", "xᵀθ"),
    Array("mixed_predictor", "double", "G", "xᵀθ, averaged over the members"),
    Array("mixed_theta", "double", "H G d", "θ, averaged over the members: of contexts, then of ranks"),
    Array("estimate", "double", "G", "μ of the mixed predictor"),
    Array("width", "double", "G", "half-width, on the scale of the predictor"),
    Array("optimistic", "double", "G", "end of the interval, or the value drawn from it"),
    Array("member_loss", "double", "N", "squared error of each member for the current sample"),
    Array("known_cost", "double", "K R", "costs known in advance; NaN: not known"),
    Array("cap", "double", "K R", "max_cost of each expert; NaN: not given"),
    Array("hold", "double", "K R", "hold of each expert, if it were asked"),
    Array("next_dual", "double", "D", "the dual after this decision is committed"),
    Array("proposed_cost", "double", "R", "expected cost of the proposed route"),
    Array("proposed_hold", "double", "R", "hold of the proposed route"),
    Array("decision_cost", "double", "R", "cost of one expert in a `Decision`"),
    Array("decision_cost_width", "double", "R", "width of that cost"),
    Array("new_reward", "double", "A", "observed now; NaN: not known"),
    Array("new_cost", "double", "R", "observed now; NaN: not known"),
    Array("window_predictor", "double", "G", "xᵀθ of a context in the window"),
    Array("window_factor", "double", "A", "factor from past widths to current ones"),
    Array("window_goal", "double", "R", "use of each resource that a price is solved for"),
    Array("window_model", "double", "W", "index of the model on each context in the window"),
    Array("window_expert", "double", "K W", "xᵀθ of each expert on each context in the window"),
    Array("window_width", "double", "K W", "width of each expert on each context in the window, without boost"),
    Array("window_gain", "double", "K W", "expected reward above the model's, of each context in the window"),
    Array("window_cost", "double", "K R W", "expected cost of each context in the window"),
    Array("sample", "Int", "W", "rows of the contexts that a price is solved for"),
    Array("task_time", "double", "1", "time of the current task"),
    Array("weighted_x", "double", "d", "a context times the root of its weight"),
    Array("indicator", "Int", "J", "feature that is 1 where this one is missing; -1: there is none"),
    Array("prior_theta", "double", "E d", "θ that the ridge pulls to"),
    Array("identity_prior", "double", "E d", "prior_theta after the switch to the identity link"),
    Array("factor", "double", "d d", "Cholesky factor"),
    Array("work", "double", "2 d", "workspace of two vectors"),
)

STRUCTS = {"Sizes": SIZES, "Options": OPTIONS, "Counters": COUNTERS, "Parameters": PARAMETERS}
ARRAYS = STATE + SCRATCH


def whole_lanes(n: int) -> int:
    """Return n rounded up to whole lanes.

    >>> whole_lanes(20), whole_lanes(21)
    (20, 24)
    """
    return -(-n // N_LANES) * N_LANES


def shapes(size: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array for these sizes; vectors and matrices are padded to whole lanes."""
    k, r = size["n_experts"], size["n_resources"]
    letters = {"d": size["stride"], "K": k, "R": r, "A": k + 1, "G": size["n_targets"], "S": STASH}
    letters |= {"N": size["n_members"], "E": size["n_members"] * size["n_targets"], "B": k + 2}
    letters |= {"V": size["n_views"], "M": size["memory"] + size["overflow"], "W": size["window"]}
    letters |= {"D": size["n_dual"], "P": size["n_pacing"]}
    letters |= {"J": size["n_ranked"], "H": 2 if size["n_ranked"] else 1}
    return {a.name: tuple(letters[s] if s in letters else int(s) for s in a.shape.split()) for a in ARRAYS}


def fields() -> list[str]:
    """Return every field with its type, in the order of the structs; compared at import with the build.

    >>> fields()[0], fields()[-1]
    ('Sizes.n_features', 'State.work double 2 d')
    """
    scalars = [f"{struct}.{scalar.name}" for struct, table in STRUCTS.items() for scalar in table]
    return scalars + [f"State.{a.name} {a.kind} {a.shape}" for a in ARRAYS]


def struct_source() -> str:
    """Return the text of `state.pxd`."""
    lines = ["# Written by setup.py from layout.py.", "from libc.stdint cimport int64_t", "", "ctypedef int64_t Int"]
    for struct, table in STRUCTS.items():
        kind = "double" if struct == "Parameters" else "Int"
        lines += ["", f"cdef struct {struct}:"]
        lines += [f"    {kind} {scalar.name}  # {scalar.meaning}" for scalar in table]
    lines += ["", "cdef struct Arrays:"]
    lines += [f"    {a.kind} *{a.name}  # [{a.shape}] {a.meaning}".rstrip() for a in ARRAYS]
    lines += ["", "cdef struct State:"]
    lines += [f"    {struct} *{struct.lower()}" for struct in STRUCTS]
    lines += ["    Arrays arrays", "    double *samples  # of estimates that are refitted exactly, see refit.pxd"]
    lines += ["    void *python_step  # of a pacing in Python, see python_step.pxd; NULL: none"]
    lines += ["    bint python_step_failed", ""]
    names = ", ".join(repr(field) for field in fields())
    return "\n".join([*lines, f"cdef inline tuple built_fields():\n    return ({names},)", ""])


def size_of(shape: tuple[int, ...]) -> int:
    """Return the number of elements of an array."""
    return math.prod(shape)
