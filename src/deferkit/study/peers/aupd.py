"""AUPD: the adaptive and universal primal-dual method of Guo and Liu, with estimates of ours.

Hengquan Guo, Xin Liu: On Stochastic Contextual Bandits with Knapsacks in Small Budget Regime, ICLR 2025
(https://openreview.net/forum?id=FCMpUOZkxi). Written from what is public of it: the abstract, and reviews that quote
the method. The printed algorithm was not at hand.

Said there, and implemented here (one resource, costs in [0, 1], b = B/T):

- V = b·√T, the trade-off that knows the budget ("V = b√T, as opposed to V = √T");
- a virtual queue Q, the cumulative over-consumption, which serves as the Lagrange multiplier of the budget; one stage,
  no warm-up, no doubling, no bound on the multiplier;
- rewards and costs are estimated by any learning oracle; everything ends once the budget is used.

Not read there, but the usual form of such a method (Lyapunov drift plus penalty), consistent with all of the above, and
that of the authors' next paper (Optimistic³, ICML 2025), which has r̂ from above, č from below, and r̂ − Q·č:

- a_t = argmax_a r̂(x_t, a) − (Q_t / V)·č(x_t, a);
- Q_1 = 0 and Q_{t+1} = max(0, Q_t + c_t − b), with the cost c_t that was observed.

Ours: the oracle, the ridge or logistic regression of a `Deferrer` with the ends of its intervals; costs are divided by
the largest possible one, so that they are in [0, 1]; the model is an action without cost; the hard stop of all rivals.
Nothing was tuned, as the method has nothing to tune.
"""

import math

from deferkit.learn.deferrer import Deferrer
from deferkit.learn.exploration import INTERVAL, Exploration
from deferkit.learn.links import link_named
from deferkit.study.peers.peer import Setting
from deferkit.types import MODEL, Decision
from deferkit.worlds.task_stream import Floats

HUMAN = "human"


class Aupd:
    """A virtual queue of what was spent too much; its length over b·√T is the price.

    >>> peer = Aupd(Setting(n_features=1, budget=25.0, horizon=100, mean_cost=0.5, seed=0, max_cost=1.0))
    >>> peer.weight, peer.price
    (2.5, 0.0)
    """

    def __init__(self, setting: Setting) -> None:
        self._unit = setting.max_cost
        self._rate = setting.budget / setting.horizon / self._unit  # b
        self.weight = self._rate * math.sqrt(setting.horizon)  # V
        self.queue = 0.0  # Q
        self._oracle = Deferrer(
            n_features=setting.n_features,
            link=setting.link,
            reward_range=link_named(setting.link).domain,
            exploration=Exploration(rule=INTERVAL),
            warm_up=0,
            seed=setting.seed,
        )

    @property
    def price(self) -> float:
        """Q/V: the reward that one unit of cost, as large as the largest possible one, must bring."""
        return self.queue / self.weight if self.weight > 0 else math.inf

    def decide(self, x: Floats) -> bool:
        """Return whether to ask the human: whether r̂ − (Q/V)·č is more than the model's r̂."""
        seen: Decision = self._oracle.propose(x).decision
        model, human = (seen.estimates[who] + seen.widths[who] for who in (MODEL, HUMAN))
        cost = max(0.0, float(seen.costs[HUMAN]) - float(seen.cost_widths[HUMAN])) / self._unit  # type: ignore[arg-type]
        return human - self.price * cost > model if self.weight > 0 else False

    def observe(self, x: Floats, asked: bool, reward: float, cost: float) -> None:
        """Teach the oracle what really happened, and move the queue."""
        decision = self._oracle.decide(x, force=HUMAN if asked else MODEL)
        self._oracle.observe(decision.id, {decision.route: reward}, cost if asked else None)
        self.queue = max(0.0, self.queue + cost / self._unit - self._rate)
