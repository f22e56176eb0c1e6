"""Boosted trees in front of the linear layer (TreeLinear): for tables, without torch."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from deferkit.errors import expected
from deferkit.extras import needs
from deferkit.learn.embed.embedding import Embedder, Shape
from deferkit.learn.embed.neural import check_memory
from deferkit.types import is_number, is_whole, plain


@dataclass(frozen=True, kw_only=True)
class TreeEmbedding:
    """What boosted trees predict of each reward and cost, beside the context itself.

    Refitted when the sample has grown by half. The past is predicted *out of fold*, by trees that have not seen it, so
    that the linear layer does not trust an overfit; a new context by the mean over the folds. Needs LightGBM
    (`pip install 'deferkit[trees]'`).

    >>> TreeEmbedding(first=40).next_at(seen=0), TreeEmbedding().next_at(seen=1_000)
    (40, 1500)
    """

    kind: ClassVar[str] = "trees"
    frozen: ClassVar[bool] = False

    folds: int = 3
    """Parts of the training set; the trees of a fold are fitted to the other parts."""
    trees: int = 60
    """Of each fold."""
    leaves: int = 15
    """Of each tree."""
    learning_rate: float = 0.1
    """What each tree counts for."""
    least_in_leaf: int = 20
    """Tasks in a leaf."""
    first: int = 64
    """Observations before the first fit."""
    growth: float = 1.5
    """How many times as many there must be for the next one."""
    memory: int | None = None
    """Tasks kept to refit on. What was learned from older ones stays, with less and less weight; None keeps all."""
    discount: float = 0.5
    """That weight, at each refit."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            object.__setattr__(self, name, plain(getattr(self, name)))
        for name, least in (("folds", 2), ("trees", 1), ("leaves", 2), ("least_in_leaf", 1), ("first", 1)):
            if not is_whole(getattr(self, name), least):
                raise expected(name, "TreeEmbedding", f"a whole number of at least {least}", getattr(self, name))
            object.__setattr__(self, name, int(getattr(self, name)))
        if not is_number(self.learning_rate) or not 0 < self.learning_rate <= 1:
            raise expected("learning_rate", "TreeEmbedding", "a number above 0 and up to 1", self.learning_rate)
        if not is_number(self.growth) or not 1 < self.growth < 1e6:
            raise expected("growth", "TreeEmbedding", "a number above 1 and below 1e6", self.growth)
        check_memory(self.memory, self.discount, "TreeEmbedding")

    def width(self, shape: Shape) -> int:
        """Return the length of the one view: the context, and a prediction for each estimate."""
        return shape.n_features + shape.n_targets

    def views(self, shape: Shape) -> list[int]:
        """Return that all estimates look at the same view."""
        return [0] * shape.n_targets

    def next_at(self, seen: int) -> int:
        """Return after how many observations it is refitted next."""
        return max(int(self.first), int(seen * self.growth), seen + 1)

    def make(self, shape: Shape) -> Embedder:
        """Return the trees, of which there are none yet."""
        needs("trees")
        from deferkit.learn.embed.forest import Forest  # noqa: PLC0415 - LightGBM is an extra

        return Forest(self, shape)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return {"kind": self.kind, **asdict(self)}
