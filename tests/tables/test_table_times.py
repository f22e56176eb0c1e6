"""Dates and ids in a table: time features, the order of the stream, columns that are left out."""

import datetime
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit import InvalidArgument
from deferkit.tables.cells import Dates
from deferkit.worlds.table import Table
from tests.command_line import Runner
from tests.table_files import HEAD, stream_of, written
from tests.workbooks import workbook

MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1))


@pytest.mark.parametrize(
    ("form", "exact"),
    [
        ("%Y-%m-%d %H:%M:%S.%f", True),
        ("%Y-%m-%dT%H:%M:%SZ", False),
        ("%Y/%m/%d %H:%M:%S", False),
        ("%d.%m.%Y %H:%M:%S", False),
        ("%m/%d/%Y %I:%M:%S %p", False),
        ("%d/%m/%Y, %H:%M:%S", False),
    ],
)
@given(moments=st.lists(MOMENTS, min_size=1, max_size=10))
def test_what_is_written_in_a_usual_form_is_read_again(
    form: str, exact: bool, moments: list[datetime.datetime]
) -> None:
    """A day above 12 tells days from months."""
    moments = [*moments, datetime.datetime(2024, 5, 31, 23, 59)]
    if not exact:
        moments = [moment.replace(microsecond=0) for moment in moments]
    found = Dates.of(pl.Series([moment.strftime(form) for moment in moments]))
    assert found.moments.to_list() == moments
    assert found.wrong == 0


def test_dates_by_hand() -> None:
    cells = ["2024-02-29T12:00:00+02:00", "2024-02-30", "29.2.2024", "2024-02-29 00:00-0530", "2024-02-29 12:00 am"]
    found = Dates.of(pl.Series(cells))
    assert found.moments.to_list() == [
        datetime.datetime(2024, 2, 29, 10),
        None,  # there is no such day
        None,  # another form than the others
        datetime.datetime(2024, 2, 29, 5, 30),
        datetime.datetime(2024, 2, 29),
    ]
    assert found.wrong == 2
    # without a day above 12 there is no telling: US with slashes, not so with points
    assert Dates.of(pl.Series(["3/4/2024"])).form == "month/day/year"
    assert Dates.of(pl.Series(["3/4/2024", "13/4/2024"])).form == "day/month/year"
    assert Dates.of(pl.Series(["3.4.2024"])).form == "day/month/year"


def test_time_features_by_hand() -> None:
    """Friday 18:00, Saturday 6:00 and Monday midnight: 0, 0.5 and 2.25 days after the first."""
    cells = pl.Series(["2024-03-01 18:00", "2024-03-02 06:00", "2024-03-04", None])
    numbers, categories = Dates.of(cells).features("x")
    np.testing.assert_allclose(numbers["x days"], [0, 0.5, 2.25, math.nan])
    np.testing.assert_allclose(numbers["x hour sin"], [-1, 1, 0, math.nan], atol=1e-15)
    np.testing.assert_allclose(numbers["x hour cos"], [0, 0, 1, math.nan], atol=1e-15)
    assert categories == {"x weekday": ["Friday", "Saturday", "Monday", None]}
    # what does not vary is no feature
    numbers, categories = Dates.of(pl.Series([datetime.date(2024, 3, 1), datetime.date(2024, 3, 8)])).features("x")
    assert ({name: column.tolist() for name, column in numbers.items()}, categories) == ({"x days": [0, 7]}, {})


def dated(times: list[str]) -> str:
    rows = [f'{i % 3}.5,"{time}",{i % 2},1,{i + 1}\n' for i, time in enumerate(times)]
    return HEAD.replace("x_kind", "x_when") + "".join(rows)


def test_a_column_of_dates_becomes_features(tmp_path: Path) -> None:
    times = [f"{1 + i % 28:02}.03.2024 {i % 24:02}:30" for i in range(50)]
    stream = stream_of(tmp_path, dated([*times[:-1], "?"]))
    assert stream.remark.splitlines() == [
        "1 cell is not a date in x_when ('?' in row 51) and counted as missing.",
        "x_when is read as dates (day/month/year, as in '01.03.2024 00:30'): days since the first one, day of week,"
        " hour of day.",
    ]
    # intercept, size; days, sine, cosine and whether each is missing; seven days and whether that is missing
    assert stream.contexts.shape == (50, 2 + 6 + 8)
    frame = pl.read_csv(dated(times).encode()).with_columns(
        pl.col("x_when").str.to_datetime("%d.%m.%Y %H:%M").dt.replace_time_zone("Europe/Berlin")
    )
    frame.write_parquet(tmp_path / "tasks.parquet")
    kept = Table(path=str(tmp_path / "tasks.parquet"), order="file").draw(0)
    np.testing.assert_array_equal(kept.contexts, stream_of(tmp_path, dated(times)).contexts)
    assert kept.remark == "x_when is read as dates: days since the first one, day of week, hour of day."


def test_the_stream_in_the_order_of_time(tmp_path: Path) -> None:
    """Costs count the rows of the file."""
    times = ["3/1/2024", "2/28/2024 9:00 PM", "3/1/2024", "2/28/2024 10:00 AM"]
    world = Table(path=written(tmp_path, dated(times)), context="x_size", time="x_when")
    for seed in (0, 1):
        stream = world.draw(seed)
        assert stream.costs[:, 0, 0].tolist() == [4, 2, 1, 3]
        np.testing.assert_array_equal(stream.rewards[:, 0], [1, 1, 0, 0])
    assert stream.remark == "Tasks come in the order of x_when (month/day/year, as in '3/1/2024')."
    assert world.parameters()["order"] == "file"
    assert Table(**world.parameters()) == world
    numbers = Table(path=written(tmp_path, dated(["10", "9", "1e1", "-3"])), context="x_size", time="x_when")
    assert numbers.draw(0).costs[:, 0, 0].tolist() == [4, 2, 1, 3]
    rows = [["x_size", "when", "model_reward", "human_reward", "cost"]]
    days = [datetime.datetime(2024, 3, day) for day in (3, 1, 2)]
    book = workbook(tmp_path / "t.xlsx", [*rows, *([0.5 + i, day, 1, 0, i + 1] for i, day in enumerate(days))])
    assert Table(path=book, time="when").draw(0).costs[:, 0, 0].tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (["2024-01-01", "soon"], "The x_when in row 3 of .* is 'soon', which is neither a date nor a number"),
        (["2024-01-01", ""], "The x_when in row 3 of .* is missing: --time needs all"),
        (["2024-01-01", "2024-02-30"], "The x_when in row 3 of .* is '2024-02-30', which is neither"),
    ],
)
def test_a_time_that_is_none(tmp_path: Path, times: list[str], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        stream_of(tmp_path, dated(times), time="x_when", context="x_size")


def test_bad_options_of_time(tmp_path: Path, said: Runner) -> None:
    path = written(tmp_path, dated(["2024-01-01", "2024-01-03", "2024-01-02"]))
    for words, message in (
        (["--time", "x_then"], "has no column 'x_then' for the time. Did you mean 'x_when'?"),
        (["--time", "cost"], "The column 'cost' of"),
        (["--time", "x_when", "--order", "shuffled"], "--order shuffled and --time are two orders"),
    ):
        done = said("run", path, *words)
        assert (done.code, done.error.count("\n")) == (2, 1)
        assert message in done.error
    done = said("run", path, "--time", "x_when", "--trials", "1", "--policy", "model-only")
    assert done.code == 0, done.error
    assert "Tasks come in the order of x_when (year-month-day" in done.out
    with pytest.raises(InvalidArgument, match="'time' of a Table must be a name of a column or None. Got 3"):
        Table(path=path, time=3)  # type: ignore[arg-type]


def test_ids_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    head = "x_row,x_task,customer_id,x_size,x_kind,model_reward,human_reward,cost\n"
    rows = [f"{1000 + i},T{i * i},{i * i * 7},{i * i}.5,{'ab'[i % 2]},{i // 2 % 2},1,1\n" for i in range(40)]
    stream = stream_of(tmp_path, head + "".join(rows), context="*")
    assert stream.contexts.shape == (40, 4)  # intercept, size, two kinds
    kept = "It is kept if --context names it."
    assert stream.remark.splitlines() == [
        f"x_row is left out as an id: whole numbers, a different one in (nearly) each row. {kept}",
        f"x_task is left out as an id: nearly all of its 40 texts differ. {kept}",
        f"customer_id is left out as an id: whole numbers, a different one in (nearly) each row. {kept}",
    ]
    stream = stream_of(tmp_path, head + "".join(rows), context="x_row,x_kind")
    assert (stream.contexts.shape, stream.remark) == ((40, 4), "")
    # of few rows nothing is concluded
    assert stream_of(tmp_path, head + "".join(rows[:10]), context="x_row,x_t*").remark == ""


def test_nothing_becomes_a_category_in_silence(tmp_path: Path) -> None:
    lines = [f"{i % 5} min,{'ab'[i % 2]},{i // 2 % 2},1,1\n" for i in range(30)]
    stream = stream_of(tmp_path, HEAD + "".join(lines))
    assert stream.remark == "x_size is taken as a category: its cells are not numbers ('0 min' in row 2)."
