"""Online decision deferral under budget constraints: who decides, the model or an expert?"""

from importlib import import_module
from typing import TYPE_CHECKING

from deferkit.errors import (
    AlreadySettled,
    AssumptionWarning,
    BudgetExhausted,
    ConfidenceWarning,
    ConflictingObservation,
    DeferkitError,
    EventOutOfOrder,
    HorizonWarning,
    InvalidArgument,
    LinkWarning,
    MissingTreesWarning,
    ServiceError,
    ServiceUnavailable,
    SpendingWarning,
    UnaffordableReviewWarning,
    UnknownDecision,
    UnreadableState,
    UnwritableState,
)
from deferkit.events import (
    BudgetChanged,
    Corrected,
    Decided,
    Event,
    Expired,
    Extended,
    Observed,
    Renewed,
    Stopped,
    WarmStarted,
)
from deferkit.moved_modules import register_moved_modules
from deferkit.types import Budget, Coefficients, Decision, Drifted, MeanEstimate, Period, Run, Scores, Summary
from deferkit.version import __version__

if TYPE_CHECKING:
    from deferkit.client.asynchronous import AsyncClient
    from deferkit.client.client import Client
    from deferkit.learn.deferrer import Deferrer
    from deferkit.learn.embed.gradient import GradientEmbedding
    from deferkit.learn.embed.neural import NeuralEmbedding
    from deferkit.learn.embed.trees import TreeEmbedding
    from deferkit.learn.encode import Encoder
    from deferkit.learn.exploration import Exploration
    from deferkit.learn.pacing import Pacing
    from deferkit.planning.answer import BudgetPlan as BudgetPlan
    from deferkit.planning.answer import plan as plan
    from deferkit.study.comparison import Comparison as Comparison
    from deferkit.study.comparison import compare as compare
else:
    # Imported on first use, so that a client loads no numpy.
    _LAZY = {
        "AsyncClient": "deferkit.client.asynchronous",
        "Client": "deferkit.client.client",
        "Deferrer": "deferkit.learn.deferrer",
        "GradientEmbedding": "deferkit.learn.embed.gradient",
        "NeuralEmbedding": "deferkit.learn.embed.neural",
        "TreeEmbedding": "deferkit.learn.embed.trees",
        "Encoder": "deferkit.learn.encode",
        "Exploration": "deferkit.learn.exploration",
        "Pacing": "deferkit.learn.pacing",
        "BudgetPlan": "deferkit.planning.answer",
        "Comparison": "deferkit.study.comparison",
        "compare": "deferkit.study.comparison",
        "plan": "deferkit.planning.answer",
    }

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *_LAZY})


register_moved_modules()
del register_moved_modules

_STUDY_NAMES = ("BudgetPlan", "Comparison", "compare", "plan")
"""Public names that need the libraries of studies, so that `import *` leaves them out."""

__all__ = [
    "AlreadySettled",
    "AssumptionWarning",
    "AsyncClient",
    "Budget",
    "BudgetChanged",
    "BudgetExhausted",
    "Client",
    "Coefficients",
    "ConfidenceWarning",
    "ConflictingObservation",
    "Corrected",
    "Decided",
    "Decision",
    "DeferkitError",
    "Deferrer",
    "Drifted",
    "Encoder",
    "Event",
    "EventOutOfOrder",
    "Expired",
    "Exploration",
    "Extended",
    "GradientEmbedding",
    "HorizonWarning",
    "InvalidArgument",
    "LinkWarning",
    "MeanEstimate",
    "MissingTreesWarning",
    "NeuralEmbedding",
    "Observed",
    "Pacing",
    "Period",
    "Renewed",
    "Run",
    "Scores",
    "ServiceError",
    "ServiceUnavailable",
    "SpendingWarning",
    "Stopped",
    "Summary",
    "TreeEmbedding",
    "UnaffordableReviewWarning",
    "UnknownDecision",
    "UnreadableState",
    "UnwritableState",
    "WarmStarted",
    "__version__",
]
