"""The compiled core of a learner: the calls from Python, for one task or for a whole stream.

Each call consists of the steps in the .pxd files; there is no second version of any of them.
"""

cimport numpy as cnp
from cpython.float cimport PyFloat_AsDouble, PyFloat_Check
from cpython.long cimport PyLong_AsLongLong, PyLong_CheckExact
from libc.math cimport NAN, fabs, isnan
from libc.string cimport memcpy, memset

from deferkit.learn.core.accounting cimport (
    EXPIRED, LINK_BINARY, LINK_SWITCHED, OPEN, SETTLED, commit, context_of, correct, cover, expire, learn_outcome,
    needs_identity_link, observe, relearn, share_reviewed, use_identity_link)
from deferkit.learn.core.arrivals cimport BINS, HORIZON, RENEWS, UNTIL, begin_period, outlook
from deferkit.learn.core.budget cimport MIN_BUDGET, left
from deferkit.learn.core.choice cimport (
    NO_BUDGET, UNSETTLED, Proposal, affordable, exceeds_cold_start_cap, is_announced, price_current_task, propose,
    size_holds)
from deferkit.learn.core.glm cimport (
    cost_target, design_of, predict_mixed, prepare, reset_estimate, split_cost_design)
from deferkit.learn.core.kernels cimport LANES, STASHED
from deferkit.learn.core.links cimport cumulant, link_names, mean, slope
from deferkit.learn.core.mixture cimport mix_theta
from deferkit.learn.core.newton cimport MIN_WEIGHT, Likelihood, Workspace, maximise
from deferkit.learn.core.pacing cimport RENEWING, pacing_names
from deferkit.learn.core.precision cimport CHECK_EVERY, LARGEST_INVERSE_ERROR, SURE_SPREAD, initialise
from deferkit.learn.core.ranks cimport (
    ABSURD, MIN_FOR_CUTS, RANKED_CONTEXTS, UNIT, add_to_ranks, cut_outliers, write_ranks)
from deferkit.learn.core.refit cimport is_refitted, refit_names, repair
from deferkit.learn.core.state cimport Arrays, Counters, Int, Options, Parameters, Sizes, State, built_fields

import numpy as np

from deferkit.types import LARGEST, REASONS, Decision

cnp.import_array()

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    /* virtual machines may hide any of these; compilers use no other instruction of x86-64-v3 on their own */
    #define HAS_X86_64_V3 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") \\
                           && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
    #else
    #define HAS_X86_64_V3 0
    #endif
    """
    const int HAS_X86_64_V3

FIELDS = built_fields()
CONSTANTS = {
    "lanes": LANES, "stash": STASHED, "open": OPEN, "settled": SETTLED, "expired": EXPIRED,
    "least_budget": MIN_BUDGET, "least_weight": MIN_WEIGHT,
    "largest_inverse_error": LARGEST_INVERSE_ERROR, "check_every": CHECK_EVERY, "sure_spread": SURE_SPREAD,
    "horizon": HORIZON, "until": UNTIL, "renews": RENEWS, "bins": BINS,
    "link_binary": LINK_BINARY, "link_switched": LINK_SWITCHED, "ranked_contexts": RANKED_CONTEXTS,
    "min_for_cuts": MIN_FOR_CUTS, "absurd": ABSURD, "unit": UNIT,
}
LINKS = link_names()
PACINGS = pacing_names()
REFITS = refit_names()
FEEDBACKS = ("full", "bandit", "reviewed")

cdef enum:
    FULL, BANDIT, REVIEWED
    LONG_STRIDE = 64

cdef double largest = LARGEST


def has_x86_64_v3():
    """Whether this processor has AVX2, FMA, BMI and BMI2."""
    return HAS_X86_64_V3 != 0


def link_functions(Int link, double eta):
    """Return μ(η), μ'(η) and A(η) of the link with this code."""
    return mean(link, eta), slope(link, eta), cumulant(link, eta)


def mean_and_weight(Int link, const double[::1] eta):
    """Return μ(η) and the Fisher weight of many samples."""
    cdef Int i
    means, weights = np.empty(len(eta)), np.empty(len(eta))
    cdef double[::1] m = means
    cdef double[::1] w = weights
    for i in range(eta.shape[0]):
        m[i], w[i] = mean(link, eta[i]), max(slope(link, eta[i]), MIN_WEIGHT)
    return means, weights


def fit(Int link, Int n_features, const double[:, ::1] samples, const double[:, ::1] precision,
        const double[::1] moment, double[::1] theta, double tolerance):
    """Maximise a penalised likelihood, starting from θ, which is updated; return the information and its inverse.

    Samples are [n, w + lanes], each a vector of n_features numbers padded to w, then its response; precision [w, w]
    and moment [w] are those of the prior.
    """
    cdef Int w = theta.shape[0]
    cdef Likelihood likelihood
    cdef Workspace work
    information, inverse, scratch = np.zeros((w, w)), np.zeros((w, w)), np.zeros((w + 3, w))
    cdef double[:, ::1] p = information
    cdef double[:, ::1] i = inverse
    cdef double[:, ::1] room = scratch
    likelihood.link, likelihood.n, likelihood.d, likelihood.w = link, samples.shape[0], n_features, w
    likelihood.samples, likelihood.length = <const double *>NULL, samples.shape[1]
    if samples.shape[0]:
        likelihood.samples = &samples[0, 0]
    likelihood.ridge, likelihood.precision, likelihood.moment = 0.0, &precision[0, 0], &moment[0]
    work.factor, work.step, work.gradient, work.weighted_x = &room[3, 0], &room[0, 0], &room[1, 0], &room[2, 0]
    with nogil:
        maximise(&likelihood, &theta[0], &p[0, 0], &i[0, 0], &work, tolerance)
    return information, inverse


cdef inline bint is_in_range(const double *row, Int n) noexcept nogil:
    cdef Int i
    for i in range(n):
        if not fabs(row[i]) <= largest:
            return False
    return True


cdef inline Int given_views(State *s) noexcept nogil:
    """The views of a context that callers give: all but the ranks."""
    return s.sizes.n_views - (s.sizes.n_ranked > 0)


cdef inline Int given_length(State *s) noexcept nogil:
    """The length of a row that callers give."""
    return s.sizes.n_given * given_views(s)


cdef inline void load_context(State *s, const double *row) noexcept nogil:
    """Copy a context, which is all of its given views in one row, to the scratch array `x`, and rank it."""
    cdef Int v, d = s.sizes.n_given
    for v in range(given_views(s)):
        memcpy(s.arrays.x + v * s.sizes.stride, row + v * d, d * sizeof(double))
    if s.parameters.intercept > 0.0:
        s.arrays.x[d] = s.parameters.intercept
    if s.sizes.n_ranked > 0:
        memcpy(s.arrays.raw, row, s.sizes.n_ranked * sizeof(double))
        for v in range(given_views(s)):
            if v != 1 or given_views(s) == 2:  # of three, the second is a stack, which has no features
                cut_outliers(s, s.arrays.x + v * s.sizes.stride, s.arrays.raw if v == 0 else NULL)
        write_ranks(s, s.arrays.x)


cdef inline bint is_revealed(Int feedback, Int route, Int decider) noexcept nogil:
    """Whether the reward of a decider is revealed: the feedback rule."""
    if route == 0 and feedback == REVIEWED:
        return False
    return decider == route or (decider == 0 and feedback != BANDIT)


def revealed(str feedback, Int route):
    """Return the deciders whose rewards are revealed if a route is chosen; 0 is the model."""
    cdef Int code = FEEDBACKS.index(feedback), decider
    return [decider for decider in range(route + 1) if is_revealed(code, route, decider)]


cdef inline void keep_price(State *s) noexcept nogil:
    """Keep the price of a proposal that is committed at once, so that it is not solved a second time."""
    if s.options.pacing == RENEWING:
        memcpy(s.arrays.dual, s.arrays.next_dual, s.sizes.n_dual * sizeof(double))
        s.counters.price_due = 0  # `next_dual` has moved for the decision before


cdef inline bint is_exact_number(object value):
    return PyFloat_Check(value) or PyLong_CheckExact(value)


cdef class Core:
    """The compiled steps over the arrays of one learner.

    Args:
        arrays: Every struct and array of `layout.py` by name; they are used in place.
        experts: The names of the experts.
        resources: The names of the resources.
        reward_bounds: The least and the largest reward.
        cost_bounds: The least and the largest cost of each resource.
    """

    cdef State s
    cdef Proposal proposal
    cdef dict arrays
    cdef object samples, python_step
    cdef tuple deciders, resources, reasons
    cdef dict decider_numbers
    cdef object decision_type
    cdef double least_reward, largest_reward, largest_cost
    cdef readonly Int all_experts
    cdef readonly Int n_loads  # calls that have replaced the context that was loaded last

    def __init__(self, dict arrays, tuple experts, tuple resources, reward_bounds, cost_bounds):
        self.deciders, self.resources, self.reasons = ("model", *experts), resources, REASONS
        self.decider_numbers = {name: number for number, name in enumerate(self.deciders)}
        self.decision_type = Decision
        self.least_reward, self.largest_reward = max(reward_bounds[0], -LARGEST), min(reward_bounds[1], LARGEST)
        self.largest_cost = min(cost_bounds[0][1], LARGEST)
        self.all_experts = (<Int>1 << len(experts)) - 1
        self.bind(arrays)
        self.bind_samples(np.zeros(0))

    def bind(self, dict arrays):
        """Use these arrays from now on."""
        cdef void **pointers = <void **>&self.s.arrays
        cdef Int i = 0
        for field in FIELDS:
            struct, _, rest = field.partition(".")
            if struct == "State":
                name, kind = rest.split()[:2]
                array = arrays[name]
                if array.dtype != (np.float64 if kind == "double" else np.int64) or not array.flags.carray:
                    raise TypeError(f"The array {name!r} must be contiguous and of type {kind}.")
                pointers[i] = cnp.PyArray_DATA(array)
                i += 1
        self.s.sizes = <Sizes *>cnp.PyArray_DATA(arrays["Sizes"])
        self.s.options = <Options *>cnp.PyArray_DATA(arrays["Options"])
        self.s.counters = <Counters *>cnp.PyArray_DATA(arrays["Counters"])
        self.s.parameters = <Parameters *>cnp.PyArray_DATA(arrays["Parameters"])
        self.arrays = arrays

    def bind_samples(self, samples):
        """Use this store of samples for exact refits from now on."""
        self.samples = samples
        self.s.samples = <double *>cnp.PyArray_DATA(samples)

    def bind_step(self, python_step):
        """Use this step of a pacing from now on: a `PythonStep`."""
        self.python_step = python_step
        self.s.python_step = <void *>python_step

    cdef inline int check_step(self) except -1:
        """Raise what the step of a pacing in Python has raised."""
        if self.s.python_step_failed:
            self.s.python_step_failed = False
            raise self.python_step.failure()
        return 0

    @property
    def next_id(self):
        """The number of the next decision."""
        return self.s.counters.next_id

    def initialise(self):
        """Initialise the precision matrices and their inverses."""
        cdef Int design
        with nogil:
            for design in range(self.s.sizes.n_members * self.s.sizes.n_targets):
                initialise(&self.s, design)
                if self.s.options.has_prior:
                    reset_estimate(&self.s, design)

    def use_identity_link(self):
        """Use the identity link from now on, without learning anything again: for a state that is restored."""
        use_identity_link(&self.s)

    def switch_link(self):
        """Switch an automatic link to the identity, and learn the remembered outcomes again."""
        with nogil:
            use_identity_link(&self.s)
            relearn(&self.s)

    def relearn(self):
        """Reset all estimates, and learn the remembered outcomes again."""
        with nogil:
            relearn(&self.s)

    def fill_rank_tables(self, const double[:, ::1] contexts):
        """Add contexts to the rank tables, until they are frozen; without a rank view, do nothing."""
        cdef Int t
        for t in range(contexts.shape[0]):
            add_to_ranks(&self.s, &contexts[t, 0])

    def replace_first_contexts(self, const double[:, ::1] contexts):
        """Replace the contexts of the first decisions, and rank them anew in their order."""
        cdef Int t, size = self.s.sizes.stride * self.s.sizes.n_views * sizeof(double)
        self.n_loads += 1
        memset(self.s.arrays.rank_count, 0, self.s.sizes.n_ranked * sizeof(Int))
        self.s.counters.n_in_ranks = 0
        for t in range(contexts.shape[0]):
            load_context(&self.s, &contexts[t, 0])
            memcpy(context_of(&self.s, t), self.s.arrays.x, size)
            add_to_ranks(&self.s, self.s.arrays.raw)

    def design_of(self, Int target):
        """Return the design that a target uses."""
        return design_of(&self.s, target)

    def cost_target(self, Int expert, Int resource):
        """Return the target of an expert's cost of a resource."""
        return cost_target(&self.s, expert, resource)

    # ------------------------------------------------------------ decide

    def try_load(self, context):
        """Load a context and return True, if it is a contiguous vector of valid doubles; else return False."""
        cdef const double *row
        if not (cnp.PyArray_CheckExact(context) and cnp.PyArray_NDIM(context) == 1
                and cnp.PyArray_TYPE(context) == cnp.NPY_DOUBLE and cnp.PyArray_ISCARRAY_RO(context)
                and cnp.PyArray_DIM(context, 0) == given_length(&self.s)):
            return False
        row = <const double *>cnp.PyArray_DATA(context)
        if not is_in_range(row, given_length(&self.s)):
            return False
        self.n_loads += 1
        load_context(&self.s, row)
        return True

    def set_time(self, double at):
        """Set the time of the task that is decided next, in seconds."""
        self.s.arrays.task_time[0] = at

    def begin_period(self, Int resource, double start, double end, bint open):
        """Begin a period of a resource; nothing may be spent before the first one is `open`."""
        begin_period(&self.s, resource, start, end, open)
        self.s.arrays.dual[self.s.sizes.n_resources] = min(
            self.s.arrays.dual[self.s.sizes.n_resources], <double>max(self.s.counters.next_id, self.s.counters.warm_up))
        cover(&self.s)

    def outlook(self, Int resource, double at):
        """Return how many tasks are expected until a budget is renewed or ends, and in a whole period."""
        ahead = outlook(&self.s, resource, at)
        return ahead.tasks, ahead.period

    def propose(self, Int available, Int force):
        """Return a proposed decision on the context that was loaded last; the state does not change."""
        price_current_task(&self.s)
        self.check_step()
        self.proposal = propose(&self.s, available, force)
        return self.decision()

    def commit(self):
        """Commit the decision that was proposed last."""
        keep_price(&self.s)
        commit(&self.s, self.proposal.route, self.proposal.reason, is_announced(&self.s, self.proposal.route))
        self.check_step()

    def commit_decided(self, Int route, Int reason, list cost, list hold, bint announced):
        """Commit a decision on the context that was loaded last, with its expected cost and its reservation.

        The expected cost is booked with the expert's reward if it was announced.
        """
        cdef Int r
        for r in range(self.s.sizes.n_resources):
            self.s.arrays.proposed_cost[r] = cost[r]
            self.s.arrays.proposed_hold[r] = hold[r]
        if self.s.sizes.stride < LONG_STRIDE:
            prepare(&self.s, self.s.arrays.x)
            commit(&self.s, route, reason, announced)
        else:  # the context that fills the rank tables makes it learn the first outcomes again: other threads go on
            with nogil:
                prepare(&self.s, self.s.arrays.x)
                commit(&self.s, route, reason, announced)
        self.check_step()

    def decide_many(self, const double[:, ::1] contexts, const double[::1] times):
        """Propose and commit tasks in order; return the decisions. There are no times where no budget needs them."""
        cdef Int t
        cdef list decisions = []
        self.n_loads += 1
        for t in range(contexts.shape[0]):
            load_context(&self.s, &contexts[t, 0])
            if times.shape[0]:
                self.s.arrays.task_time[0] = times[t]
            price_current_task(&self.s)
            self.check_step()
            self.proposal = propose(&self.s, self.all_experts, -1)
            decisions.append(self.decision())
            self.commit()
        return decisions

    def score_many(self, const double[:, ::1] contexts, Int[::1] routes, double[:, ::1] estimates,
                   double[:, ::1] widths, double[::1] price):
        """Write the route, estimates and widths of each context, as if it came next; the state does not change."""
        cdef Int t, target
        self.n_loads += 1
        with nogil:
            self.s.arrays.task_time[0] = self.s.arrays.clock[0]
            price_current_task(&self.s)
            for t in range(contexts.shape[0]):
                load_context(&self.s, &contexts[t, 0])
                routes[t] = propose(&self.s, self.all_experts, -1).route
                for target in range(self.s.sizes.n_targets):
                    estimates[t, target] = self.s.arrays.estimate[target]
                    widths[t, target] = self.width(target)
                memcpy(&price[0], self.s.arrays.next_dual, self.s.sizes.n_resources * sizeof(double))
        self.check_step()

    def predict_remembered(self, const Int[::1] slots, double[:, ::1] predictors):
        """Write xᵀθ of every target for contexts in these rows, as the price is solved with; a proposal stays valid."""
        cdef Int i
        with nogil:
            mix_theta(&self.s)
            for i in range(slots.shape[0]):
                predict_mixed(&self.s, context_of(&self.s, slots[i]), &predictors[i, 0])

    def obstacles(self):
        """Return for each expert why it could not be asked now: "budget", "unsettled", or nothing."""
        cdef Int k
        size_holds(&self.s)
        return [self.reasons[NO_BUDGET] if not affordable(&self.s, k)
                else self.reasons[UNSETTLED] if exceeds_cold_start_cap(&self.s, k) else ""
                for k in range(self.s.sizes.n_experts)]

    cdef inline double width(self, Int target) noexcept nogil:
        """What optimism adds to an estimate or subtracts from it; the standard deviation under Thompson sampling."""
        if self.s.options.sampled:
            return self.s.arrays.width[target]
        return fabs(self.s.arrays.optimistic[target] - self.s.arrays.estimate[target])

    cdef inline object amount(self, const double *values):
        """A number if there is one resource, else numbers by resource."""
        cdef Int r
        cdef dict amounts
        if self.s.sizes.n_resources == 1:
            return values[0]
        amounts = {}
        for r in range(self.s.sizes.n_resources):
            amounts[self.resources[r]] = values[r]
        return amounts

    cdef object decision(self):
        """The proposal as a `Decision`."""
        cdef State *s = &self.s
        cdef dict estimates = {}, widths = {}, costs = {}, cost_widths = {}
        cdef Int r, decider, cost_index, resources = s.sizes.n_resources
        cdef double *free = s.arrays.new_cost  # not in use until the next observation
        cdef double *values = s.arrays.decision_cost
        cdef double *value_widths = s.arrays.decision_cost_width
        for decider in range(s.sizes.n_experts + 1):
            name = self.deciders[decider]
            estimates[name] = s.arrays.estimate[decider]
            widths[name] = self.width(decider)
            if decider > 0:
                for r in range(resources):
                    cost_index = (decider - 1) * resources + r
                    values[r] = s.arrays.known_cost[cost_index]
                    value_widths[r] = 0.0
                    if isnan(values[r]):
                        values[r] = s.arrays.estimate[cost_target(s, decider - 1, r)]
                        value_widths[r] = self.width(cost_target(s, decider - 1, r))
                costs[name] = self.amount(values)
                cost_widths[name] = self.amount(value_widths)
        for r in range(resources):
            free[r] = left(s, r)
        return tuple.__new__(self.decision_type, (
            s.counters.next_id, self.deciders[self.proposal.route], self.reasons[self.proposal.reason],
            self.proposal.propensity, self.amount(s.arrays.next_dual), self.amount(free),
            self.amount(s.arrays.proposed_hold), self.amount(s.arrays.proposed_cost), estimates, widths, costs,
            cost_widths))

    # ------------------------------------------------------------ observe

    def try_observe(self, decision, rewards, cost):
        """Observe a decision in the ring and return True, if all values are plain numbers, valid and new; else False.

        Nothing changes after False: the caller takes the slow path, which reports what is wrong.
        """
        cdef State *s = &self.s
        cdef Int number, slot, decider, deciders = s.sizes.n_experts + 1, target
        cdef double value
        cdef bint new = False
        if not PyLong_CheckExact(decision) or s.sizes.n_resources != 1:
            return False
        number = PyLong_AsLongLong(decision) if -1 < decision < s.counters.next_id else -1
        if number < 0 or number < s.counters.next_id - s.sizes.memory:
            return False
        slot = number % s.sizes.memory
        for decider in range(deciders):
            s.arrays.new_reward[decider] = NAN
        if rewards is not None:
            if type(rewards) is not dict:
                return False
            for name, given in (<dict>rewards).items():
                known = self.decider_numbers.get(name) if type(name) is str else None
                if known is None or not is_exact_number(given):
                    return False
                decider = known
                value = as_double(given)
                if not (self.least_reward <= value <= self.largest_reward
                        and isnan(s.arrays.reward[slot * deciders + decider])):
                    return False
                s.arrays.new_reward[decider] = value
                new = True
        s.arrays.new_cost[0] = NAN
        if cost is not None:
            if not is_exact_number(cost) or s.arrays.route[slot] == 0 or not isnan(s.arrays.cost[slot]):
                return False
            value = as_double(cost)
            if not 0.0 <= value <= self.largest_cost or value > s.arrays.cap[s.arrays.route[slot] - 1]:
                return False
            s.arrays.new_cost[0] = value
            new = True
        elif s.arrays.announced[slot] and isnan(s.arrays.cost[slot]):
            return False  # the cost that was announced may have to be booked
        if not new:
            return False
        for decider in range(deciders):
            if needs_identity_link(s, s.arrays.new_reward[decider]):
                return False  # estimates are learned again, which is reported
        for target in range(s.sizes.n_targets):
            if is_refitted(s, target) and s.arrays.n_observed[target] >= s.counters.capacity and (
                    s.counters.capacity > 0 or s.arrays.n_observed[target] < s.options.refit_limit):
                return False  # the sample store must grow, or can be freed
        if s.sizes.stride < LONG_STRIDE and s.counters.capacity == 0:
            prepare(s, context_of(s, slot))
            observe(s, number, slot)
        else:  # it may take seconds, with inverses recomputed or an exact refit: other threads go on
            with nogil:
                prepare(s, context_of(s, slot))
                observe(s, number, slot)
        self.check_step()
        return True

    def observe(self, Int decision, Int slot, list rewards, list cost):
        """Book and learn new rewards and costs of a decision, with NaN for unknown values."""
        cdef Int i
        for i in range(self.s.sizes.n_experts + 1):
            self.s.arrays.new_reward[i] = rewards[i]
        for i in range(self.s.sizes.n_resources):
            self.s.arrays.new_cost[i] = cost[i]
        with nogil:
            prepare(&self.s, context_of(&self.s, slot))
            observe(&self.s, decision, slot)
        self.check_step()

    def expire(self, Int slot):
        """Release the hold of a decision whose cost will not be reported."""
        expire(&self.s, slot)

    def cover(self):
        """Pay overruns by costs above max_cost with free budget: after a change of the budget or of a cost."""
        cover(&self.s)

    def correct(self, Int slot, Int target, double old, double new):
        """Replace the response `old` of a sample by `new`."""
        correct(&self.s, slot, target, old, new)

    def learn_many(self, const double[:, ::1] contexts, const Int[::1] cost_expert, const double[:, ::1] rewards,
                   const double[:, ::1] costs):
        """Learn from tasks without booking; `cost_expert` is the expert whose costs are given, 0 for none."""
        cdef State *s = &self.s
        cdef Int t
        self.n_loads += 1
        with nogil:
            for t in range(contexts.shape[0]):
                load_context(s, &contexts[t, 0])
                prepare(s, s.arrays.x)
                learn_outcome(s, cost_expert[t], s.arrays.x, &rewards[t, 0], &costs[t, 0])
                if s.counters.repair_due:
                    repair(s)

    def split_cost_design(self, Int expert):
        """Split the design that the costs of an expert share with its reward, if they do."""
        split_cost_design(&self.s, expert)

    # ------------------------------------------------------------ the bulk loop

    def run(self, const double[:, ::1] contexts, const double[:, ::1] rewards, const double[:, :, ::1] costs,
            const double[::1] times, Int feedback, Int[::1] routes, Int[::1] reasons, double[::1] propensities, double[:, ::1] prices,
            double[::1] earned, double[:, ::1] paid):
        """Decide a stream of tasks, and observe each before the next. Costs are [task, expert, resource].

        Where reviews can be stopped, one is when it has cost the limit, or when nothing is left to extend its hold.

        Return the number of tasks done: the loop stops if a representation is due to be retrained, or the link has
        changed.
        """
        cdef State *s = &self.s
        cdef Int t, r, slot, answered, done = contexts.shape[0], link_state = s.counters.link_state
        cdef double done_share
        cdef Proposal p
        self.n_loads += 1
        with nogil:
            for t in range(contexts.shape[0]):
                load_context(s, &contexts[t, 0])
                if times.shape[0]:
                    s.arrays.task_time[0] = times[t]
                price_current_task(s)
                p = propose(s, self.all_experts, -1)
                routes[t], reasons[t], propensities[t] = p.route, p.reason, p.propensity
                slot = s.counters.slot
                keep_price(s)
                commit(s, p.route, p.reason, is_announced(s, p.route))
                done_share = share_reviewed(s, slot, &costs[t, p.route - 1, 0]) if p.route > 0 else 1.0
                answered = p.route if done_share == 1.0 else 0  # a review that was stopped leaves the model's answer
                s.counters.n_stopped += done_share < 1.0
                earned[t] = rewards[t, answered]
                for r in range(s.sizes.n_resources):
                    prices[t, r] = s.arrays.next_dual[r]
                    paid[t, r] = done_share * costs[t, p.route - 1, r] if p.route > 0 else 0.0
                    s.arrays.new_cost[r] = paid[t, r] if p.route > 0 else NAN
                for r in range(s.sizes.n_experts + 1):
                    s.arrays.new_reward[r] = rewards[t, r] if is_revealed(feedback, answered, r) else NAN
                observe(s, s.counters.next_id - 1, slot)
                if (s.counters.n_seen >= s.counters.retrain_at or s.python_step_failed
                        or s.counters.link_state != link_state):
                    done = t + 1
                    break
        self.check_step()
        return done


cdef inline double as_double(object value) except? -1.0:
    """A number as a double; an int that is too large becomes infinite, which is out of every bound."""
    if PyFloat_Check(value):
        return PyFloat_AsDouble(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf")
