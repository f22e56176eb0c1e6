"""Online decision deferral under budget constraints: who decides, the model or an expert?"""

from deferkit.client.client import Client
from deferkit.errors import (
    AlreadySettled,
    AssumptionWarning,
    BudgetExhausted,
    ConflictingObservation,
    DeferkitError,
    EventOutOfOrder,
    HorizonWarning,
    InvalidArgument,
    ServiceError,
    ServiceUnavailable,
    UnknownDecision,
    UnreadableState,
)
from deferkit.events import BudgetChanged, Corrected, Decided, Event, Expired, Observed, WarmStarted
from deferkit.learn.deferrer import Deferrer
from deferkit.learn.embed.gradient import GradientEmbedding
from deferkit.learn.embed.neural import NeuralEmbedding
from deferkit.learn.embed.trees import TreeEmbedding
from deferkit.learn.encode import Encoder
from deferkit.learn.exploration import Exploration
from deferkit.learn.pacing import Pacing
from deferkit.types import Budget, Coefficients, Decision, Run, Scores, Summary
from deferkit.version import __version__

__all__ = [
    "AlreadySettled",
    "AssumptionWarning",
    "Budget",
    "BudgetChanged",
    "BudgetExhausted",
    "Client",
    "Coefficients",
    "ConflictingObservation",
    "Corrected",
    "Decided",
    "Decision",
    "DeferkitError",
    "Deferrer",
    "Encoder",
    "Event",
    "EventOutOfOrder",
    "Expired",
    "Exploration",
    "GradientEmbedding",
    "HorizonWarning",
    "InvalidArgument",
    "NeuralEmbedding",
    "Observed",
    "Pacing",
    "Run",
    "Scores",
    "ServiceError",
    "ServiceUnavailable",
    "Summary",
    "TreeEmbedding",
    "UnknownDecision",
    "UnreadableState",
    "WarmStarted",
    "__version__",
]
