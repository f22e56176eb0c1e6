"""Texts and vectors beside named features: encoding, state, events, functions of one's own, tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deferkit import Budget, Deferrer, Encoder, InvalidArgument
from deferkit.learn.texts import hash_text
from deferkit.worlds.table import Table

COMPLAINTS = ["the parcel never came", "my parcel came broken", "parcel came late again", "no parcel came at all"]
PRAISE = [
    "thank you for quick help",
    "great service and quick help",
    "very kind and great help",
    "quick and kind, thank you",
]


def comments(n: int) -> tuple[list[str], np.ndarray[Any, np.dtype[np.bool_]]]:
    rng = np.random.default_rng(0)
    bad = rng.random(n) < 0.5
    return [f"{rng.choice(COMPLAINTS if each else PRAISE)} {rng.integers(1_000)}" for each in bad], bad


def test_a_vector_is_scaled_into_the_ball_and_a_missing_one_is_marked() -> None:
    encoder = Encoder(numbers=["age"], vectors={"v": 2})
    assert encoder.names == ("intercept", "age", "age missing", "v 1", "v 2", "v missing")
    assert encoder.indicators == [-1, 2, -1, 5, 5, -1]
    size = 3**0.5
    assert encoder.encode({"v": [3.0, 4.0]})[3:] == pytest.approx(np.array([0.6, 0.8, 0.0]) / size)
    assert encoder.encode({"v": np.array([0.3, 0.4])})[3:] == pytest.approx(np.array([0.3, 0.4, 0.0]) / size)
    assert encoder.encode({"age": 1.0})[3:] == pytest.approx(np.array([0.0, 0.0, 1.0]) / size)
    assert np.linalg.norm(encoder.encode({"age": 1.0, "v": [9.0, 9.0]})) <= 1.0 + 1e-12


@pytest.mark.parametrize("wrong", [[1.0], [1.0, float("nan")], [1.0, 1e300], "text", ["a", "b"], 3.0, [[1.0, 2.0]]])
def test_a_wrong_vector_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="'v' of a context must be a vector of 2 finite numbers or None"):
        Encoder(vectors={"v": 2}).encode({"v": wrong})


@pytest.mark.parametrize(
    "given",
    [
        {"texts": "comment"},
        {"texts": [3]},
        {"vectors": {"v": 0}},
        {"vectors": ["v"]},
        {"vectors": {"v": 2}, "texts": ["v"]},
        {"numbers": ["v"], "texts": ["v"]},
        {"texts": {"t": lambda _: [1.0, 2.0]}},
    ],
)
def test_wrong_features_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="of a[n]? Encoder must be"):
        Encoder(**given)


def test_texts_alike_are_near_and_others_are_not() -> None:
    near, far = hash_text(COMPLAINTS[0]) @ hash_text(COMPLAINTS[3]), hash_text(COMPLAINTS[0]) @ hash_text(PRAISE[0])
    assert near > far + 0.2
    assert hash_text("Ärger!") @ hash_text("ärger") == pytest.approx(1.0)
    assert not hash_text(" … ").any()
    assert hash_text("parcel " * 100_000).shape == (64,)
    # the same for ever: a state has no words, only what was learned of their elements
    assert hash_text("parcel", 8).tolist() == [0.0, -0.5, -0.5, -0.5, 0.0, 0.5, 0.0, 0.0]


def test_many_rows_are_encoded_as_one_by_one() -> None:
    encoder = Encoder(numbers=["age"], categories={"land": 2}, vectors={"v": 3}, texts=["note"])
    rng = np.random.default_rng(0)
    rows = [
        {
            "age": float(i),
            "land": "de",
            "v": rng.normal(size=3) if i % 3 else None,
            "note": COMPLAINTS[i % 4] if i % 5 else None,
        }
        for i in range(20)
    ]
    columns = {name: [row[name] for row in rows] for name in ("age", "land", "v", "note")}
    encoder.see_columns(columns)
    assert (encoder.encode_columns(columns) == np.array([encoder.encode(row) for row in rows])).all()
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert (again.encode_columns(columns) == encoder.encode_columns(columns)).all()


def test_an_encoder_without_them_is_kept_as_before() -> None:
    assert set(Encoder(numbers=["age"]).to_dict()) == {"numbers", "room", "levels", "intercept", "scales"}


def run(learner: Deferrer, texts: list[str], bad: Any, first: int = 0) -> list[str]:
    """Decide tasks whose model is wrong about complaints; return the routes."""
    routes = []
    for text, wrong in zip(texts[first:], bad[first:], strict=True):
        decision = learner.decide({"comment": text})
        routes.append(decision.route)
        cost = 1.0 if decision.route == "human" else None
        learner.observe(decision.id, {"model": float(not wrong), "human": 1.0}, cost=cost)
    return routes


@pytest.mark.parametrize("function", [False, True])
def test_a_learner_learns_from_texts(function: bool) -> None:
    texts, bad = comments(400)
    given: Any = (
        {"comment": lambda texts: np.array([hash_text(text, 16) for text in texts])} if function else ["comment"]
    )
    learner = Deferrer(
        encoder=Encoder(texts=given), budget=Budget(200, horizon=400, max_cost=1), representation="linear"
    )
    routes = np.array(run(learner, texts, bad)) == "human"
    assert routes[200:][bad[200:]].mean() > 0.85
    assert routes[200:][~bad[200:]].mean() < 0.15


def test_a_learner_with_texts_is_saved_and_its_events_replay(tmp_path: Path) -> None:
    texts, bad = comments(120)
    settings: dict[str, Any] = {"budget": Budget(60, horizon=120, max_cost=1), "representation": "linear"}
    encoder = Encoder(texts=["comment"])
    learner = Deferrer(encoder=encoder, **settings)
    run(learner, texts[:60], bad[:60])
    learner.save(tmp_path / "texts.state")
    again = Deferrer.load(tmp_path / "texts.state")
    assert again == learner
    assert run(again, texts, bad, 60) == run(learner, texts, bad, 60)
    event = learner.propose({"comment": "hello there"})
    assert event.context == {"comment": "hello there"}


def test_a_function_is_not_in_the_state_and_its_vectors_are_in_the_events(tmp_path: Path) -> None:
    learner = Deferrer(encoder=Encoder(texts={"comment": lambda texts: [[1.0, 0.0]] * len(texts)}))
    event = learner.propose({"comment": "hello"})
    assert event.context == {"comment": [1.0, 0.0]}
    learner.apply(event)
    learner.save(tmp_path / "function.state")
    loaded = Deferrer.load(tmp_path / "function.state")
    with pytest.raises(InvalidArgument, match="a loaded learner has no function for its texts"):
        loaded.decide({"comment": "hello"})
    assert loaded.decide({"comment": [1.0, 0.0]}).id == 1


def test_a_table_reads_prose_and_says_so(tmp_path: Path) -> None:
    texts, bad = comments(200)
    rows = [f'"{text} {i}",{int(not wrong)},1,1' for i, (text, wrong) in enumerate(zip(texts, bad, strict=True))]
    path = tmp_path / "comments.csv"
    path.write_text("\n".join(["x_comment,model_reward,human_reward,cost", *rows]))
    stream = Table(path=str(path)).draw(0)
    assert "x_comment is read as text: its words are hashed." in stream.remark
    assert 60 < stream.contexts.shape[1] <= 65
    learner = Deferrer.from_table(path, budget=Budget(50, horizon=100, max_cost=1), representation="linear")
    scores = learner.score([{"x_comment": COMPLAINTS[0]}, {"x_comment": PRAISE[0]}])
    assert scores.estimates["model"][0] < scores.estimates["model"][1]
