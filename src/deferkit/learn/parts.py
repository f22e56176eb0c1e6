"""The collaborators that one learner consists of."""

from typing import NamedTuple

from deferkit.learn.contexts import Contexts
from deferkit.learn.encode import Encoder
from deferkit.learn.ledger import Ledger
from deferkit.learn.outcomes import Outcomes
from deferkit.learn.records import Records
from deferkit.learn.representation import Representation, representation_of
from deferkit.learn.settings import Settings


class Parts(NamedTuple):
    """What decides, learns and remembers for one learner."""

    settings: Settings
    ledger: Ledger
    records: Records
    contexts: Contexts
    outcomes: Outcomes
    representation: Representation | None

    @classmethod
    def of(cls, settings: Settings, ledger: Ledger, encoder: Encoder | None) -> "Parts":
        """Return the collaborators of a learner with this state."""
        if encoder is not None and ledger.next_id == 0:
            ledger.set("unsettled", 1)
        representation = representation_of(settings, ledger)
        records = Records(settings.experts, settings.resources, settings.n_features, ledger)
        contexts = Contexts(ledger.core, settings.n_features, encoder, representation)
        return cls(
            settings, ledger, records, contexts, Outcomes(settings, ledger, records, representation), representation
        )
