"""A table of one's own as a world: what is read, and what it means."""

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.study.spec import Spec
from deferkit.worlds import make_world
from deferkit.worlds.table import Table
from tests.table_files import HEAD, ROWS, many, stream_of, written


def test_a_table_by_hand(tmp_path: Path) -> None:
    """Sizes 3, 9, 5 (mean 17/3) and two kinds; one over √3 for each of intercept, number and category."""
    stream = stream_of(tmp_path, HEAD + ROWS)
    size = np.array([3.0, 9.0, 5.0])
    scaled = (size - size.mean()) / (3 * size.std())
    kinds = np.array([[1, 0], [0, 1], [1, 0]])
    np.testing.assert_allclose(stream.contexts, np.column_stack([np.ones(3), scaled, kinds]) / math.sqrt(3))
    np.testing.assert_array_equal(stream.rewards, [[1, 1], [0, 1], [1, 0]])
    np.testing.assert_array_equal(stream.costs[:, 0, 0], [2, 4, 3])
    assert (stream.link, stream.complete, stream.remark, stream.truth) == ("logistic", True, "", None)


def test_all_kinds_of_file_hold_the_same(tmp_path: Path) -> None:
    text = HEAD + ROWS
    plain = Table(path=written(tmp_path, text), order="file").draw(0)
    semicolons = text.replace(",", ";")
    others = {
        "bom.csv": "\ufeff" + text,
        "semicolon.csv": semicolons,
        "tab.csv": text.replace(",", "\t"),
        "crlf.csv": text.replace("\n", "\r\n"),
        "blank.csv": text.replace("9,b", "\n9,b") + "\n\n",
        "quoted.csv": text.replace("3,a", '"3","a"').replace("x_size", '"x_size"'),
        "spaces.csv": text.replace(",", " , "),
        "truths.csv": text.replace("1,1,2", "True,true,2").replace("0,1,4", "False,TRUE,4"),
    }
    paths = [written(tmp_path, other, name) for name, other in others.items()]
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    frame = pl.read_csv(text.encode())
    frame.write_parquet(tmp_path / "numbers.parquet")
    odd: Any = {
        "model_reward": pl.Boolean,
        "x_kind": pl.Categorical,
        "cost": pl.Decimal(10, 2),
        "x_size": pl.Int8,
    }
    frame.cast(odd).write_parquet(tmp_path / "kinds.parquet")
    for path in [*paths, *(str(tmp_path / n) for n in ("packed.csv.gz", "numbers.parquet", "kinds.parquet"))]:
        stream = Table(path=path, order="file").draw(0)
        np.testing.assert_array_equal(stream.contexts, plain.contexts, err_msg=path)
        np.testing.assert_array_equal(stream.rewards, plain.rewards, err_msg=path)
        np.testing.assert_array_equal(stream.costs, plain.costs, err_msg=path)


def test_columns_are_chosen_by_name_and_glob(tmp_path: Path) -> None:
    text = "a,b,c,m,h,euros\n1,2,3,0.5,0.7,1\n4,5,9,0.1,0.9,2\n"
    names = {"model_reward": "m", "human_reward": "h", "cost": "euros"}
    for context, width in (("a", 2), ("a,b", 3), ("*", 4), ("[ab]", 3), ("a, c", 3)):
        assert stream_of(tmp_path, text, context=context, **names).contexts.shape == (2, width)
    for context, words in (
        ("h", "is an outcome"),
        ("a,z*", "No column .* matches the context 'z.'"),
        ("aa", "Its col"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            stream_of(tmp_path, text, context=context, **names)
    with pytest.raises(InvalidArgument, match="three columns"):
        stream_of(tmp_path, text, context="a", model_reward="m", human_reward="m", cost="euros")
    with pytest.raises(InvalidArgument, match="'order' of a Table must be one of 'shuffled', 'file'. Got 'sorted'"):
        Table(path=written(tmp_path, HEAD + ROWS), order="sorted")


def test_a_seed_is_an_order(tmp_path: Path) -> None:
    world = Table(path=many(tmp_path))
    one, again, other = world.draw(1), world.draw(1), world.draw(2)
    np.testing.assert_array_equal(one.contexts, again.contexts)
    assert not np.array_equal(one.costs, other.costs)
    assert sorted(one.costs.ravel()) == sorted(other.costs.ravel())
    with pytest.raises(InvalidArgument, match="'seed' of a Table"):
        world.draw(-1)


def test_kept_results_are_those_of_the_content(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + ROWS)
    before = Spec.of(path, {}, policy="opt", budget="10%")
    assert Spec.of(path, {}, policy="opt", budget="10%").key == before.key
    assert before.world_parameters["digest"]
    assert make_world(before.world, before.world_parameters).draw(0).n_tasks == 3
    written(tmp_path, HEAD + ROWS + "1,a,1,0,3\n")
    assert Spec.of(path, {}, policy="opt", budget="10%").key != before.key
    with pytest.raises(InvalidArgument, match="has changed since"):
        make_world(before.world, before.world_parameters)


def test_missing_cells_of_a_context_and_rare_levels(tmp_path: Path) -> None:
    kinds = [f"k{i % 5}" for i in range(60)] + [f"rare{i}" for i in range(40)]
    lines = [f"{'' if i % 10 == 0 else i},{kind},{i % 2},1,1\n" for i, kind in enumerate(kinds)]
    stream = stream_of(tmp_path, HEAD + "".join(lines))
    # intercept, size and its missing, 20 levels and the others
    assert stream.contexts.shape == (100, 1 + 2 + 20 + 1)
    assert "x_kind has 45 levels; all but the 20 most frequent are 'other'." in stream.remark
    other = stream.contexts[:, -1] > 0
    assert other.sum() == 25
    np.testing.assert_array_equal(np.flatnonzero(stream.contexts[:, 2] > 0), np.arange(0, 100, 10))


def test_a_column_of_numbers_and_texts(tmp_path: Path) -> None:
    lines = [f"{'?' if i == 7 else i},{i if i % 2 else 'odd'},{i % 2},1,1\n" for i in range(20)]
    stream = stream_of(tmp_path, HEAD + "".join(lines))
    assert "1 cell is not a number in x_size ('?' in row 9) and counted as missing." in stream.remark
    assert "x_kind is taken as a category: some of it is numbers, some is not ('odd' in row 2)." in stream.remark
    np.testing.assert_array_equal(np.flatnonzero(stream.contexts[:, 2] > 0), [7])


def test_rewards_that_are_not_0_or_1_are_linear(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, HEAD + ROWS + "4,b,-250.5,1e6,0\n")
    assert stream.link == "identity"
    assert stream.rewards.tolist()[-1] == [-250.5, 1e6]
