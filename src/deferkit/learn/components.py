"""The components of a learner, wired together."""

import math
from dataclasses import replace
from typing import NamedTuple

from deferkit.learn.context import ContextLoader
from deferkit.learn.core import CONSTANTS
from deferkit.learn.embed.representation import Host, Representation
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import new_ledger, write_prior
from deferkit.learn.ledger import Ledger
from deferkit.learn.outcomes import Outcomes
from deferkit.learn.pacing.python_pacing import PythonPacing
from deferkit.learn.python_step import PythonStep
from deferkit.learn.renewals import Renewals
from deferkit.learn.reports import LedgerReader
from deferkit.learn.settings import Settings


class Components(NamedTuple):
    """The components of one learner.

    Attributes:
        settings: What the learner was made with.
        ledger: The arrays of its state, and the decisions that it remembers.
        reader: Reports of the ledger for users.
        contexts: Checks and encodes contexts for the compiled core.
        outcomes: Checks, books and learns outcomes.
        representation: What stands between contexts and estimates.
        renewals: Finds and applies the renewals of budgets.
    """

    settings: Settings
    ledger: Ledger
    reader: LedgerReader
    contexts: ContextLoader
    outcomes: Outcomes
    representation: Representation
    renewals: Renewals

    @classmethod
    def of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> "Components":
        """Return the components of a learner with this state."""
        if encoder is not None and ledger.next_id == 0:
            ledger.set("unsettled", 1)
        if encoder is not None and settings.has_ranks:
            ledger.view("indicator")[:] = encoder.indicators
            ledger.set("rank_length", 1.0 / math.sqrt(1.0 + len(encoder.features)))
            ledger.set("intercept", 0.0)
            indicators = len(encoder.numbers) + 2 * len(encoder.max_levels) + len(encoder.blocks)
            ledger.set("dimension", encoder.n_features - indicators)
        write_prior(settings, ledger, encoder)
        if isinstance(settings.strategy, PythonPacing):
            ledger.core.bind_step(PythonStep(settings, ledger))
        representation = settings.kind.make(host_of(settings, ledger, encoder))
        reader = LedgerReader(settings, ledger)
        contexts = ContextLoader(ledger.core, settings.n_features, encoder, representation)
        if contexts.encoder is not None and settings.has_ranks:
            contexts.encoder.clips = False
        outcomes = Outcomes(settings, ledger, reader, representation)
        return cls(settings, ledger, reader, contexts, outcomes, representation, Renewals(settings, ledger))


def host_of(settings: Settings, ledger: Ledger, encoder: Encoder | None) -> Host:
    """Return the parts of a learner that its representation uses."""
    # the ledger that a fit learns with holds no decisions, so that the smallest memory is enough; the members that read
    # ranks do not depend on trees, and come last
    memory, without = max(1, settings.pacing.window), (*settings.without, "ranks")

    def fresh_ledger(link: str) -> Ledger:
        made = replace(settings, memory=memory, without=without, link=link)
        fresh = new_ledger(made)
        write_prior(made, fresh, encoder)
        return fresh

    shape = settings.shape
    if ledger.get("link_state") == CONSTANTS["link_switched"]:
        shape = shape._replace(link="identity")
    return Host(shape, ledger, settings.ridge_used, settings.strategy, fresh_ledger)
