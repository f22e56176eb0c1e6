"""The components of a learner, wired together."""

import math
from typing import NamedTuple

from deferkit.learn.context import ContextLoader
from deferkit.learn.encode import Encoder
from deferkit.learn.initial_state import write_prior
from deferkit.learn.ledger import Ledger
from deferkit.learn.outcomes import Outcomes
from deferkit.learn.pacing.python_pacing import PythonPacing
from deferkit.learn.python_step import PythonStep
from deferkit.learn.renewals import Renewals
from deferkit.learn.reports import LedgerReader
from deferkit.learn.representation import Representation, representation_of
from deferkit.learn.settings import Settings


class Components(NamedTuple):
    """The components of one learner.

    Attributes:
        settings: What the learner was made with.
        ledger: The arrays of its state, and the decisions that it remembers.
        reader: Reports of the ledger for users.
        contexts: Checks and encodes contexts for the compiled core.
        outcomes: Checks, books and learns outcomes.
        representation: Trees or an embedding in front of the estimates; None if they read the contexts themselves.
        renewals: Finds and applies the renewals of budgets.
    """

    settings: Settings
    ledger: Ledger
    reader: LedgerReader
    contexts: ContextLoader
    outcomes: Outcomes
    representation: Representation | None
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
        representation = representation_of(settings, ledger, encoder)
        reader = LedgerReader(settings.experts, settings.resources, settings.n_features, ledger)
        contexts = ContextLoader(ledger.core, settings.n_features, encoder, representation)
        if contexts.encoder is not None and settings.has_ranks:
            contexts.encoder.clips = False
        outcomes = Outcomes(settings, ledger, reader, representation)
        return cls(settings, ledger, reader, contexts, outcomes, representation, Renewals(settings, ledger))
