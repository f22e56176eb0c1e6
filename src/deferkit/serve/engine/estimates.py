"""What a policy has learned: coefficients with their errors, and whether its estimates were right."""

from collections.abc import Mapping

import msgspec
import numpy as np

from deferkit.learn.links import link_named
from deferkit.learn.representation_text import representation_text
from deferkit.serve.domain.owned_policy import OwnedPolicy
from deferkit.serve.engine.history.calibration import CalibrationBin
from deferkit.serve.engine.policy_summary import DriftState, drift_states
from deferkit.types import Coefficients

MAX_COEFFICIENTS = 50  # coefficients of a target


class Coefficient(msgspec.Struct, frozen=True, kw_only=True):
    """What a feature adds to an estimate, with its standard error."""

    feature: str
    value: float
    error: float


class TargetEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of a reward ("model", an expert) or a cost ("cost of …")."""

    target: str
    samples: int
    samples_in_use: float
    coefficients: list[Coefficient]  # the 50 that are clearest, by |value| over error
    calibration: list[CalibrationBin]  # of the latest 5,000 observations


class EstimatesReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy has learned."""

    targets: list[TargetEstimate]
    drifts: list[DriftState]
    representation: str


def estimates_of(owned: OwnedPolicy, calibrations: Mapping[str, list[CalibrationBin]]) -> EstimatesReply:
    """Return the coefficients, calibration and drifts of a policy.

    Args:
        owned: The policy.
        calibrations: Predicted against observed, by target, as the log has it.
    """
    learner, spec = owned.policy.learner, owned.policy.spec
    summary = learner.figures()
    targets = []
    for name, each in learner.coefficients().items():
        probability = link_named(learner.link if name in spec.deciders else spec.cost_link).is_probability
        scale = 1.0 if probability else summary.noise[name]
        targets.append(
            TargetEstimate(
                target=name,
                samples=summary.samples[name],
                samples_in_use=summary.samples_in_use[name],
                coefficients=clearest(each, scale, learner.settings.n_features),
                calibration=calibrations.get(name, []),
            )
        )
    return EstimatesReply(targets=targets, drifts=drift_states(owned), representation=representation_text(learner))


def clearest(given: Coefficients, scale: float, n_features: int) -> list[Coefficient]:
    """Return the most significant coefficients, by |value| / standard error, which is √(M⁻¹)ⱼⱼ times the noise."""
    errors = scale * np.sqrt(np.maximum(0.0, np.diag(given.inverse)))
    names = given.names or tuple(
        f"feature {j + 1}" if j < n_features else f"trees {j + 1 - n_features}" for j in range(len(given.theta))
    )
    clarity = np.where(errors > 0, np.abs(given.theta) / np.where(errors > 0, errors, 1.0), np.inf)
    clarity[given.theta == 0] = 0.0
    best = sorted(range(len(names)), key=lambda j: -clarity[j])[:MAX_COEFFICIENTS]
    return [Coefficient(feature=names[j], value=float(given.theta[j]), error=float(errors[j])) for j in best]
