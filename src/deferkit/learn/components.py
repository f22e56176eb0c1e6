"""The collaborators that one learner consists of."""

from typing import NamedTuple

from deferkit.learn.context_loader import ContextLoader
from deferkit.learn.encode import Encoder
from deferkit.learn.ledger import Ledger
from deferkit.learn.ledger_reader import LedgerReader
from deferkit.learn.outcomes import Outcomes
from deferkit.learn.representation import Representation, representation_of
from deferkit.learn.settings import Settings


class Components(NamedTuple):
    """What decides, learns and remembers for one learner."""

    settings: Settings
    ledger: Ledger
    reader: LedgerReader
    contexts: ContextLoader
    outcomes: Outcomes
    representation: Representation | None

    @classmethod
    def of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> "Components":
        """Return the collaborators of a learner with this state."""
        if encoder is not None and ledger.next_id == 0:
            ledger.set("unsettled", 1)
        representation = representation_of(settings, ledger)
        reader = LedgerReader(settings.experts, settings.resources, settings.n_features, ledger)
        contexts = ContextLoader(ledger.core, settings.n_features, encoder, representation)
        return cls(
            settings, ledger, reader, contexts, Outcomes(settings, ledger, reader, representation), representation
        )
