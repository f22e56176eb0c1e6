"""Settings of a `TreeEmbedding`: boosted trees in front of the linear layer (TreeLinear)."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from deferkit.errors import expected
from deferkit.extras import needs
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.learn.embed.neural import MEMORY
from deferkit.types import AT_LEAST_ONE, at_least, check_fields, number

NODE_NUMBERS = 5  # feature, threshold, children, value
TREE_STEP = 1_000_000  # multiplications that a tree costs beyond those of its tasks
MAX_LEAVES = 131_072  # of LightGBM
CONSTRAINTS = {
    **dict.fromkeys(("folds", "leaves"), at_least(2)),
    **dict.fromkeys(("trees", "least_in_leaf", "first"), AT_LEAST_ONE),
    "learning_rate": number("a number above 0 and up to 1", lambda value: 0 < value <= 1),
    "growth": number("a number above 1 and below 1e6", lambda value: 1 < value < 1e6),
    **MEMORY,
}


@dataclass(frozen=True, kw_only=True)
class TreeEmbedding:
    """The context with the predictions of boosted trees for each reward and cost, for tables. Needs LightGBM.

    Observed tasks are predicted *out of fold*, by trees that were not fitted to them, so that the linear layer does not
    trust overfitted predictions; new tasks by the mean over the folds. `pip install 'deferkit[trees]'` installs
    LightGBM.

    Args:
        folds: The number of folds, at least 2; the trees of a fold are fitted to the others. 3 by default.
        trees: The number of trees of each fold and target; 60 by default.
        leaves: The number of leaves of a tree, from 2 to 131,072; 15 by default.
        learning_rate: The shrinkage of each tree, up to 1; 0.1 by default.
        least_in_leaf: The least number of tasks in a leaf; 20 by default.
        first: The number of observations before the first fit; 64 by default.
        growth: The factor by which the number of observations grows between two fits; 1.5 by default.
        memory: The number of tasks kept to refit on; None (default) keeps all. What was learned from older
            tasks stays, discounted at each refit.
        discount: The factor of that discount, from 0 to 1; 0.5 by default.

    Raises:
        InvalidArgument: If an argument is of the wrong type or out of range.

    >>> TreeEmbedding(first=40).next_at(seen=0), TreeEmbedding().next_at(seen=1_000)
    (40, 1500)
    """

    kind: ClassVar[str] = "trees"
    feature: ClassVar[str] = "trees"
    frozen: ClassVar[bool] = False

    folds: int = 3
    trees: int = 60
    leaves: int = 15
    learning_rate: float = 0.1
    least_in_leaf: int = 20
    first: int = 64
    growth: float = 1.5
    memory: int | None = None
    discount: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self, CONSTRAINTS)
        if self.leaves > MAX_LEAVES:
            raise expected("leaves", "TreeEmbedding", f"at most {MAX_LEAVES:,}", self.leaves)

    def width(self, shape: Shape) -> int:
        """Return the length of the view: the context, and a prediction for each target."""
        return shape.n_features + shape.n_targets

    def views(self, shape: Shape) -> list[int]:
        """Return view 0 for all targets."""
        return [0] * shape.n_targets

    def next_at(self, seen: int) -> int:
        """Return the number of observations at which the trees are fitted next."""
        return max(int(self.first), int(seen * self.growth), seen + 1)

    def count_numbers(self, shape: Shape) -> int:
        """Return the number of numbers in the nodes of all trees."""
        return NODE_NUMBERS * 2 * self.leaves * self.trees * self.folds * shape.n_targets

    def training_step(self, shape: Shape, n: int) -> int:
        """Return the multiplications of fitting the trees of all folds to n tasks, and of their predictions."""
        return shape.n_targets * self.folds * self.trees * (n * (shape.n_features + self.leaves) + TREE_STEP)

    def make(self, shape: Shape) -> Embedder:
        """Return the embedder, without trees."""
        needs("trees")
        from deferkit.learn.embed.forest import Forest  # noqa: PLC0415 - LightGBM is an extra

        return Forest(self, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"kind": self.kind, **asdict(self)}
