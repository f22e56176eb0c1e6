"""Tables that cannot be read, and in which words that is said."""

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deferkit import InvalidArgument
from deferkit.worlds import make_world
from tests.table_files import HEAD, ROWS, written

BAD = {
    "": "is empty",
    HEAD: "has no rows below its header",
    HEAD + "\n\n": "no rows below its header",
    HEAD + "3,a,1,1,2\n": "has one row. A table of tasks needs at least 2",
    (HEAD + ROWS).replace("model_reward", "model_rewrad"): "no column 'model_reward' for the model's reward. Did you "
    "mean 'model_rewrad'. Its columns: x_size, x_kind, model_rewrad",
    (HEAD + ROWS).replace("cost", "price"): "no column 'cost' for the cost. Its columns",
    (HEAD + ROWS).replace("x_", "f_"): "No column of .* matches the context 'x_.'",
    HEAD + ROWS + "5,a,good,0,3\n": "The model_reward in row 5 of .* is 'good', which is not a number.$",
    HEAD + ROWS + "\n5,a,1,0,dear\n": "The cost in row 6 of .* is 'dear', which is not a number",
    HEAD + ROWS + "5,a,1,0,true\n": "The cost in row 5 of .* is 'true', which is not a number",
    HEAD + ROWS + '5,a,"0,5",0,3\n5,a,0.5,0,3\n': "'model_reward' of .* mixes decimal points and decimal commas "
    r"\('0.5' in row 6, '0,5' in row 5\)",
    HEAD + '"1,5",a,1,0,3\n2.5,a,1,0,3\n': "'x_size' of .* mixes decimal points and decimal commas",
    HEAD
    + ROWS
    + "5,a,1,0,3%\n": r"'cost' of .* numbers with and without a percent sign \('3%' in row 5, '2' in row 2\)",
    HEAD + ROWS + "5,a,1,0,1 23\n": "The cost in row 5 of .* is '1 23', which is not a number",
    HEAD + ROWS + "5,a,1,0,1.2.3\n": "The cost in row 5 of .* is '1.2.3', which is not a number",
    HEAD + "5,a,ok,0,3\n5,a,bad,0,3\n": r"'ok', which is not a number \(nor yes or no, true or false, right or wrong\)",
    HEAD
    + "".join(f"{i},k{i},1,0,3\n" for i in range(30)): r"All context columns of .* look like ids \(x_size, x_kind\)",
    HEAD + ROWS + "5,a,1,0,-3\n": r"The cost in row 5 of .* is below 0 \(-3\)",
    HEAD + ROWS + "5,a,inf,0,3\n": r"The model_reward in row 5 of .* is infinite or too large \(inf\)",
    HEAD + ROWS + "5,a,1,0,1e999\n": "The cost in row 5 of .* is infinite",
    HEAD + ROWS + "-inf,a,1,0,1\n": "The x_size in row 5 of .* is infinite",
    HEAD + ROWS + "5,a,,0,3\n": "The model_reward in row 5 of .* is missing",
    HEAD + ROWS + "5,a,NaN,0,3\n": "The model_reward in row 5 of .* is missing",
    HEAD + "3,a,1,,2\n9,b,0,,4\n": "No row of .* has both a human_reward and a cost: nobody was ever asked",
    HEAD.replace("x_kind", "x_size") + ROWS: "has 2 columns with the name 'x_size'",
    HEAD.replace("x_kind,", ",,") + ROWS: "has 2 columns with no name",
    HEAD + ROWS + "5,a,1,0,3,7\n": "row 5 has more cells than the header has names .6, not 5.",
    HEAD + ROWS + "\n5,a,1,0,3,7,8\n": "row 6 has more cells than the header has names .7, not 5.",
    HEAD + '"5,a,1,0,3\n5,a,1,0,3\n': "a quote is opened and never closed",
    HEAD + "\0\1\2" + ROWS: "is not text, but something binary",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=BAD[text]) as caught:
        make_world(written(tmp_path, text), {})
    assert "\n" not in str(caught.value)


def test_what_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "binary.csv").write_bytes((HEAD + "3,ä\2,1,1,2\n" + ROWS).encode("latin1"))
    (tmp_path / "cut.csv").write_bytes((HEAD + ROWS).encode("utf-16")[:-1])
    (tmp_path / "not.csv.gz").write_text(HEAD + ROWS)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress((HEAD + ROWS).encode())[:-9])
    (tmp_path / "not.parquet").write_text(HEAD + ROWS)
    (tmp_path / "tasks.xlsx").write_text(HEAD + ROWS)
    (tmp_path / "tasks.xls").write_text(HEAD + ROWS)
    frame = pl.read_csv((HEAD + ROWS).encode())
    frame.with_columns(x_when=pl.duration(days=1)).write_parquet(tmp_path / "duration.parquet")
    frame.with_columns(cost=pl.date(2024, 1, 1)).write_parquet(tmp_path / "cost.parquet")
    for name, words in {
        "folder.csv": "is a directory",
        "none.csv": "There is no file .*none.csv",
        "binary.csv": "is not text, but something binary",
        "cut.csv": "begins like UTF-16, but is not",
        "not.csv.gz": "cannot be unpacked",
        "cut.csv.gz": "cannot be unpacked",
        "not.parquet": "cannot be read as Parquet",
        "tasks.xlsx": "cannot be read as an Excel workbook",
        "tasks.xls": "is not a table by its name: that ends with .csv, .csv.gz, .tsv, .parquet, .xlsx",
        "duration.parquet": "'x_when' .* is Duration.*; a context is a number or a text",
        "cost.parquet": "'cost' .* must hold numbers. It holds Date",
    }.items():
        with pytest.raises(InvalidArgument, match=words) as caught:
            make_world(str(tmp_path / name), {})
        assert "\n" not in str(caught.value)
    nothing: list[Any] = ["moon", "synthetic2", "tasks.txt", 7]
    for name in nothing:
        with pytest.raises(InvalidArgument, match="There is no world .* A path to a CSV or Parquet file is one too"):
            make_world(name, {})
    with pytest.raises(InvalidArgument, match="Did you mean 'synthetic'?"):
        make_world("synthtic", {})
