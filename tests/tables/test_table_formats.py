"""Numbers, truths, character sets and workbooks as people have them."""

import contextlib
import gzip
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit import InvalidArgument
from deferkit.errors import MissingExtra
from deferkit.tables.cells import Notes, Numerals
from deferkit.tables.sheet import Sheet
from deferkit.worlds.table import Table
from tests.table_files import HEAD, ROWS, stream_of, written
from tests.workbooks import workbook


def read_column(*cells: str | None, separator: str = ",", **others: list[str]) -> tuple[list[float | None], list[str]]:
    """Return the numbers of a column, and what is said of it."""
    frame = pl.DataFrame({"x": pl.Series(cells, dtype=pl.String), **others})
    sheet = Sheet("t.csv", frame, pl.Series(range(2, 2 + len(cells))), separator)
    notes = Notes()
    found = Numerals(sheet).parse_column(frame["x"])
    found.note(frame["x"], notes)
    return found.values.to_list(), notes.lines()


@pytest.mark.parametrize(
    ("cells", "numbers", "said"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300], []),
        (["12 %", "7%", "0", None], [0.12, 0.07, 0, None], ["x: per cent become fractions ('12 %' is 0.12)."]),
        (["1,234.5", "7"], [1234.5, 7], ["x: thousands separators ('1,234.5' is 1234.5)."]),
        (["1,234,567", "0.5"], [1234567, 0.5], ["x: thousands separators ('1,234,567' is 1234567)."]),
        (["1.234,5", "7"], [1234.5, 7], ["x: decimal commas, thousands separators ('1.234,5' is 1234.5)."]),
        (["1.234.567", "7"], [1234567, 7], ["x: thousands separators ('1.234.567' is 1234567)."]),
        (["0,5", "-7,25"], [0.5, -7.25], ["x: decimal commas ('0,5' is 0.5)."]),
        (["1 234", "7"], [1234, 7], ["x: thousands separators ('1 234' is 1234)."]),
        (["1\u00a0234,5", "7"], [1234.5, 7], ["x: decimal commas, thousands separators ('1\\xa0234,5' is 1234.5)."]),
        (["12'345.50", "7"], [12345.5, 7], ['x: thousands separators ("12\'345.50" is 12345.5).']),
        (["0,125", "1,234"], [0.125, 1.234], ["x: decimal commas ('0,125' is 0.125)."]),
        (["1,234", "2,500"], [1234, 2500], ["x: thousands separators ('1,234' is 1234)."]),
        (["−3", "4"], [-3, 4], ["x: long minus signs ('−3' is -3)."]),
        (
            ["3", "1.234,5 %"],
            None,
            ["mixes numbers with and without a percent sign"],
        ),
    ],
)
def test_a_column_of_numbers(cells: list[str | None], numbers: list[float | None] | None, said: list[str]) -> None:
    if numbers is None:
        with pytest.raises(InvalidArgument, match=said[0]):
            read_column(*cells)
    else:
        assert read_column(*cells) == (numbers, said)


def test_what_one_column_leaves_open_the_others_decide() -> None:
    """1,234 is a thousand and something or one and something, and so is 1.234."""
    assert read_column("1,234", "5")[0] == [1234, 5]
    assert read_column("1,234", "5", separator=";")[0] == [1.234, 5]
    assert read_column("1,234", "5", y=["0,5", "7"])[0] == [1.234, 5]
    assert read_column("1,234", "5", separator=";", y=["0.5", "7"])[0] == [1234, 5]
    assert read_column("1.234", "5")[0] == [1.234, 5]
    assert read_column("1.234", "5", separator=";")[0] == [1.234, 5]
    assert read_column("1.234", "5", y=["0,5", "7"]) == (
        [1234, 5],
        ["x: thousands separators ('1.234' is 1234)."],
    )
    assert read_column("1.23", "5", y=["0,5", "7"])[0] == [1.23, 5]


DIGITS = st.decimals(min_value=-(10**9), max_value=10**9, places=3, allow_nan=False, allow_infinity=False)


def point(number: Decimal) -> str:
    return f"{number:,}"


WAYS: dict[str, Callable[[Decimal], str]] = {
    "1,234.500": point,
    "1.234,500": lambda number: point(number).translate(str.maketrans(",.", ".,")),
    "1234,500": lambda number: str(number).replace(".", ","),
    "1 234,500": lambda number: point(number).replace(",", "\u202f").replace(".", ","),
    "1'234.500": lambda number: point(number).replace(",", "’"),
}


@given(numbers=st.lists(DIGITS, min_size=1, max_size=20), way=st.sampled_from(sorted(WAYS)), percent=st.booleans())
def test_what_is_written_in_any_way_is_read_again(numbers: list[Decimal], way: str, percent: bool) -> None:
    """Three decimals are the hard case: they look like thousands. A number below 1 tells the sign of the column."""
    numbers = [*numbers, Decimal("0.125")]
    cells = [WAYS[way](number) + (" %" if percent else "") for number in numbers]
    found, _ = read_column(*cells)
    expected = [float(number) / 100 if percent else float(number) for number in numbers]
    assert found == pytest.approx(expected, rel=1e-15)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_plain_numbers_are_read_as_ever(numbers: list[float]) -> None:
    assert read_column(*map(repr, numbers)) == (numbers, [])


@given(st.lists(st.text("0123456789.,% -'eE", min_size=1, max_size=8), min_size=1, max_size=8))
def test_no_text_breaks_the_reader(cells: list[str]) -> None:
    with contextlib.suppress(InvalidArgument):  # a column that mixes ways of writing is refused
        assert len(read_column(*cells)[0]) == len(cells)


def test_a_table_of_a_european_spreadsheet(tmp_path: Path) -> None:
    """The same table as by hand, with semicolons, decimal commas, words and percent signs."""
    text = (
        "x_size;x_share;model_reward;human_reward;cost\n"
        "1.000,5;12 %;ja;richtig;2,5\n20;7,5 %;nein;ja;4\n3;0 %;J;Falsch;1.003\n"
    )
    ours = "x_size,x_share,model_reward,human_reward,cost\n1000.5,.12,1,1,2.5\n20,.075,0,1,4\n3,0,1,0,1003\n"
    found, plain = stream_of(tmp_path, text), stream_of(tmp_path, ours)
    np.testing.assert_allclose(found.contexts, plain.contexts, rtol=1e-14)
    np.testing.assert_array_equal(found.rewards, plain.rewards)
    np.testing.assert_array_equal(found.costs, plain.costs)
    assert (found.link, plain.remark) == ("logistic", "")
    assert found.remark.splitlines() == [
        "model_reward, human_reward: yes and no become 1 and 0 ('ja' is 1).",
        "cost, x_size: decimal commas, thousands separators ('1.003' is 1003).",
        "x_share: decimal commas, per cent become fractions ('7,5 %' is 0.075).",
    ]


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("TRUE", "False"), ("ja", "Nein"), ("right", "wrong"), ("y", "n")]
)
def test_words_for_rewards(tmp_path: Path, yes: str, no: str) -> None:
    stream = stream_of(tmp_path, HEAD + f"3,a,{yes},{no},2\n9,b,{no},,4\n5,a,1,0,3\n")
    np.testing.assert_array_equal(stream.rewards, [[1, 0], [0, math.nan], [1, 0]])
    assert stream.remark.startswith("model_reward, human_reward: yes and no become 1 and 0 (")


@pytest.mark.parametrize(
    ("charset", "said"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", "is read as UTF-16."),
        ("utf-16-le", "is read as UTF-16."),
        ("utf-16-be", "is read as UTF-16."),
        ("cp1252", "is not UTF-8 and is read as Windows-1252: check that 'ö' is right."),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_character_sets(tmp_path: Path, charset: str, said: str, separator: str) -> None:
    text = (HEAD + ROWS).replace("x_kind", "x_größe").replace("9,b", "9,ß").replace(",", separator)
    path = tmp_path / "tasks.csv"
    path.write_bytes(text.encode(charset))
    sheet = Sheet.from_file(str(path))
    assert sheet.frame.columns[1] == "x_größe"
    assert sheet.frame["x_größe"].to_list() == ["a", "ß", "a"]
    assert sheet.separator == separator
    assert sheet.remarks == ((f"{path} {said}",) if said else ())
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(text.encode(charset)))
    assert Sheet.from_file(str(packed)).frame.equals(sheet.frame)


def test_a_byte_that_windows_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_bytes((HEAD + ROWS).replace("9,b", "9,\x81").encode("latin-1"))
    assert Sheet.from_file(str(path)).remarks == (
        f"{path} is not UTF-8 and is read as Latin-1: check that '\\x81' is right.",
    )


def test_short_rows_are_told_by_their_number(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + '3,"a\nb",1,1,2\n\n9,b,0\n5,a,1,0,3\n5,a,1\n')
    stream = Table(path=path, order="file").draw(0)
    said = f"Row 4 of {path} has 3 of 5 cells, as do 1 more: cells missing at the end count as missing values."
    assert said in stream.remark.splitlines()
    np.testing.assert_array_equal(np.isnan(stream.costs[:, 0, 0]), [False, True, False, True])
    # an empty cell is not a missing one
    assert "counts as missing" not in stream_of(tmp_path, HEAD + ROWS + "5,a,1,,\n").remark


def test_a_workbook_holds_the_same(tmp_path: Path) -> None:
    rows: list[list[Any]] = [
        ["x_size", "x_kind", "model_reward", "human_reward", "cost"],
        [3, "a", True, 1, 2],
        [9, " b", False, 1.0, 4],
        [None] * 5,
        [5, "a", True, 0, 3],
    ]
    plain = stream_of(tmp_path, HEAD + ROWS)
    path = workbook(tmp_path / "tasks.xlsx", rows)
    stream = Table(path=path, order="file").draw(0)
    np.testing.assert_array_equal(stream.contexts, plain.contexts)
    np.testing.assert_array_equal(stream.rewards, plain.rewards)
    np.testing.assert_array_equal(stream.costs, plain.costs)
    assert stream.remark == ""
    # a title's empty line above the header, an empty column before it, texts among numbers, another sheet
    shifted = [[], *([None, *row] for row in rows), [None, "?", "a", True, "nein", "1,5"]]
    path = workbook(tmp_path / "more.xlsx", shifted, "Notes")
    sheet = Sheet.from_file(path)
    assert sheet.rows.to_list() == [3, 4, 6, 7]
    assert sheet.remarks == (f"{path} has 2 sheets; the first, 'Tasks', is read.",)
    stream = Table(path=path, order="file").draw(0)
    np.testing.assert_array_equal(stream.rewards[:, 1], [1, 1, 0, 0])
    np.testing.assert_array_equal(stream.costs[:, 0, 0], [2, 4, 3, 1.5])


def test_workbooks_that_are_no_tables(tmp_path: Path) -> None:
    bad: list[tuple[list[list[Any]], str]] = [
        ([], "is empty: its first sheet, 'Tasks', has no cells"),
        ([["x_a", "x_a", "cost"], [1, 2, 3], [1, 2, 3]], "has 2 columns with the name 'x_a'"),
        ([["x_a", "cost"]], "has no rows below its header"),
        ([["x_a", "model_reward", "human_reward", "cost"], [1, 1, 1, 1], [1, 1, 1, "dear"]], "row 3 .* 'dear'"),
    ]
    for rows, words in bad:
        with pytest.raises(InvalidArgument, match=words) as caught:
            Table(path=workbook(tmp_path / "tasks.xlsx", rows))
        assert "\n" not in str(caught.value)


def test_a_missing_reader_of_workbooks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deferkit.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"An Excel file \(.xlsx\) needs python_calamine: pip install 'deferkit\[xl"):
        Table(path=workbook(tmp_path / "tasks.xlsx", [["x_a"], [1]]))
