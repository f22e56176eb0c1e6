"""A torch module of the user's, and what happens where a library is missing."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deferkit import (
    Budget,
    Deferrer,
    InvalidArgument,
    NeuralEmbedding,
    TreeEmbedding,
)
from tests.conftest import draw_tasks, rewards_of, step_through


def own_module(n_features: int) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(n_features, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6))


def test_a_module_of_your_own(tmp_path: Path) -> None:
    embedding = NeuralEmbedding(module=own_module, hidden=6, every=50, learning_rate=1e-2)
    tasks = draw_tasks(300, 4)
    bulk, single = (
        Deferrer(n_features=4, budget=Budget(100, horizon=300, max_cost=1), embedding=embedding) for _ in range(2)
    )
    bulk.run(tasks.contexts, rewards_of(bulk, tasks), tasks.costs)
    before = single._representation.embedder.state()["body body 0.0.weight"]  # type: ignore[attr-defined]
    step_through(single, tasks)
    after = single._representation.embedder.state()["body body 0.0.weight"]  # type: ignore[attr-defined]
    assert bulk == single
    assert not np.array_equal(before, after)
    bulk.save(tmp_path / "own.state")
    with pytest.raises(InvalidArgument, match="a torch module of your own"):
        Deferrer.load(tmp_path / "own.state")
    with pytest.raises(InvalidArgument, match="another embedding"):
        Deferrer.load(tmp_path / "own.state", embedding=NeuralEmbedding(module=own_module, hidden=6))
    again = Deferrer.load(tmp_path / "own.state", embedding=embedding)
    assert again == bulk
    for learner in (again, bulk):
        learner.change_budget(200)
        with pytest.warns(UserWarning, match="horizon"):
            learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    assert again == bulk


def test_a_module_with_dropout_and_frozen_layers_is_part_of_the_fold(tmp_path: Path) -> None:

    def body(n_features: int) -> Any:
        first = torch.nn.Linear(n_features, 8)
        for parameter in first.parameters():
            parameter.requires_grad = False
        return torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))

    embedding = NeuralEmbedding(module=body, hidden=4, every=20)
    tasks = draw_tasks(100, 3)
    one, other = (Deferrer(n_features=3, embedding=embedding) for _ in range(2))
    for learner in (one, other):
        learner.run(tasks.contexts, rewards_of(learner, tasks), tasks.costs)
    assert one == other
    one.save(tmp_path / "own.state")
    assert Deferrer.load(tmp_path / "own.state", embedding=embedding) == one


def test_a_module_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="turn \\[2, 4\\] into \\[2, 5\\]"):
        Deferrer(n_features=4, embedding=NeuralEmbedding(module=own_module, hidden=5))
    with pytest.raises(InvalidArgument, match="Got int"):
        Deferrer(n_features=4, embedding=NeuralEmbedding(module=lambda n: n, hidden=5))


@pytest.mark.parametrize(
    ("library", "room", "embedding", "hint"),
    [
        ("torch", "torch_modules", NeuralEmbedding(module=own_module), "pip install 'deferkit\\[neural\\]'"),
        ("lightgbm", "forest", TreeEmbedding(), "pip install 'deferkit\\[trees\\]'"),
    ],
)
def test_a_missing_library_gives_one_line(
    library: str, room: str, embedding: Any, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"deferkit.learn.embed.{room}", raising=False)
    with pytest.raises(InvalidArgument, match=hint):
        Deferrer(n_features=2, embedding=embedding)
    monkeypatch.undo()
    importlib.import_module(f"deferkit.learn.embed.{room}")


def test_the_default_network_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    learner = Deferrer(n_features=2, embedding=NeuralEmbedding(every=2))
    for _ in range(5):
        learner.observe(learner.decide([0.1, 0.2]).id, {"model": 0.5})
