"""Other people's budgeted bandits on our problem, each behind the same two verbs.

All but `aupd`, which is written here from a paper, are other people's packages.

Importing this or any module below needs none of their packages (which are imported where a peer is made, so that
doctests and types can be read without them); making a peer does.
"""

import functools
import importlib
from importlib import metadata
from typing import NamedTuple

from deferkit.errors import expected
from deferkit.study.peers.peer import Make, Peer, Setting, run_peer

__all__ = ["PACKAGED", "PEERS", "Make", "Peer", "PeerKind", "Setting", "run_peer"]

BUDGET_CB = "'budget-constrained-CB==0.0.0' joblib scikit-learn"  # it names no requirements of its own


class PeerKind(NamedTuple):
    """A peer that can be made."""

    make: Make
    description: str
    install: str  # what to give to pip install; nothing, if it is written here
    import_name: str

    @property
    def version(self) -> str:
        """The version that is installed, or nothing."""
        try:
            return "" if not self.install else metadata.version(self.install.partition("==")[0].strip("'"))
        except metadata.PackageNotFoundError:
            return ""


def _make(name: str, module_name: str, class_name: str, setting: Setting) -> Peer:
    """Return a fresh peer, or say what to install."""
    kind = PEERS[name]
    try:
        if kind.import_name:
            importlib.import_module(kind.import_name)
        module = importlib.import_module(f"{__name__}.{module_name}")
    except ModuleNotFoundError as error:
        wanted = f"one whose packages are installed (pip install {kind.install})"
        raise expected("peer", "study", wanted, name) from error
    peer: Peer = getattr(module, class_name)(setting)
    return peer


def _kind(
    name: str, module_name: str, class_name: str, description: str, install: str, import_name: str
) -> tuple[str, PeerKind]:
    return name, PeerKind(functools.partial(_make, name, module_name, class_name), description, install, import_name)


PEERS: dict[str, PeerKind] = dict(
    [
        _kind(
            "ucb-alp",
            "budgeted",
            "UcbAlp",
            "UCB-ALP (Wu et al. 2015): clusters of contexts share the asks by a linear programme",
            BUDGET_CB,
            "budgetcb.constrained_cb",
        ),
        _kind(
            "hatch",
            "clustered",
            "Hatch",
            "HATCH (Yang et al. 2020): the same over learned cluster values, LinUCB within a cluster",
            BUDGET_CB,
            "budgetcb.constrained_cb",
        ),
        _kind(
            "budget-linucb",
            "budgeted",
            "BudgetLinUcb",
            "LinUCB; where the human looks best, he is asked with probability asks left / tasks left",
            BUDGET_CB,
            "budgetcb.constrained_cb",
        ),
        _kind(
            "pareto",
            "libraries",
            "Pareto",
            "ParetoBandit: LinUCB less a dual price on a fixed price list",
            "'paretobandit==0.1.1'",
            "pareto_bandit.policy",
        ),
        _kind(
            "vw",
            "libraries",
            "Vw",
            "Vowpal Wabbit regressors of rewards and cost under a dual price",
            "'vowpalwabbit==9.11.9'",
            "vowpalwabbit",
        ),
        _kind(
            "aupd",
            "budgeted",
            "Aupd",
            "AUPD (Guo and Liu 2025): a virtual queue over b·√T as price, optimistic estimates like ours",
            "",
            "",
        ),
    ]
)
PACKAGED = tuple(name for name, kind in PEERS.items() if kind.install)
"""Those that need another library."""
