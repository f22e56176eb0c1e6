"""The rows of a table as they stand in its columns: contexts and outcomes, not yet encoded.

One of the numbers of the context may be the model's own confidence. It is named, or found: by its name and range, or by
past rows, on which the model was the better the higher it was. Outcomes of tasks to be decided are never looked at.
"""

import itertools
import math
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from deferkit.errors import InvalidArgument
from deferkit.tables.cells import Notes, Numerals, join_first_names
from deferkit.tables.columns import (
    ContextColumns,
    ContextReader,
    Floats,
    check_columns,
    find_named,
    outcome,
    pick,
    times_of,
)
from deferkit.tables.sheet import Sheet

NONE = "none"  # no column is the model's confidence
CONFIDENCE = re.compile(
    "conf|confidence|scores?|probs?|proba|probability|certainty|pmax|maxprob|softmax|konfidenz|wahrscheinlichkeit"
    "|sicherheit|gewissheit|modellsicherheit|modellkonfidenz"
)
OTHERS = re.compile(  # somebody else's confidence, or not a confidence at all
    "human|person|expert|reviewer|annotator|rater|user|customer|risk|credit|mensch|expert(e|in)|prüfer(in)?|gutachter"
    "|kunde|kundin|risiko|bonität"
)
REVIEWER = re.compile("human|person|expert|review(er)?|annotat(or|ion)|rater|prüf(er|ung)|gutachter|experte|mensch")
OF_REVIEW = re.compile(
    "label|answer|decision|verdict|result|correct|right|reward|costs?|minutes|seconds|hours|time|duration|dauer|minuten"
    "|sekunden|ergebnis|antwort|urteil|entscheidung|kosten"
)
AFTERWARDS = re.compile("truth|groundtruth|gold|outcome|verdict")
LEAK = 0.99  # share of an outcome that a column predicts, from which on it is doubted
MIN_ROWS = 30  # that say how well a column predicts
MANY = 12  # columns that a remark lists
ODD_SHARE = 0.01  # of rewards: as many that are not 0 or 1 are doubted
MIN_PAST = 50  # past rows that are enough to see whether a column goes with the model's rewards
CLEAR, CONTRARY = (
    4.0,
    -2.0,
)  # correlation in standard errors: found by past rows alone; not a confidence in spite of its name


class Names(NamedTuple):
    """Which columns of a table are meant."""

    context: str  # a name, a glob or several of them with commas between
    model_reward: str
    human_reward: str
    cost: str
    time: str | None = None
    confidence: str | None = None  # of the model; "none" if there is none, None to find it


class Rows(NamedTuple):
    """Tasks, a row for each; NaN where an outcome is not known."""

    path: str
    contexts: ContextColumns
    rewards: Floats  # [n, 2]
    costs: Floats  # [n]
    times: Floats | None  # [n] where there is a column for them
    remarks: list[str]
    reader: ContextReader

    @property
    def binary(self) -> bool:
        """Whether all rewards that are known are 0 or 1."""
        return bool((np.isin(self.rewards, (0.0, 1.0)) | np.isnan(self.rewards)).all())


def read_rows(sheet: Sheet, names: Names, *, like: Rows | None = None, past: bool = False) -> Rows:
    """Return the rows of a table.

    Args:
        sheet: Its cells.
        names: Its columns.
        like: Rows of another table with the same context columns; they say what each column is.
        past: Whether these are tasks of the past, where the model's reward may be missing too, and nobody may have
            been asked.

    Raises:
        InvalidArgument: if a column or a cell is not what it must be, or differs from the table to be like.
    """
    needed = {"model's reward": names.model_reward, "human's reward": names.human_reward, "cost": names.cost}
    check_columns(sheet, needed if names.time is None else {**needed, "time": names.time})
    outcomes = (names.model_reward, names.human_reward, names.cost)
    if len(set(outcomes)) < len(outcomes):
        raise InvalidArgument(f"Rewards and cost must be three columns. Got {', '.join(outcomes)} instead.")
    if names.time in outcomes:
        raise InvalidArgument(f"The column {names.time!r} of {sheet.path} is an outcome and cannot be the time too.")
    picked = pick(sheet, names.context, outcomes)
    keep = find_named(sheet, names.context)
    if names.confidence not in (None, NONE):
        check_columns(sheet, {"confidence": str(names.confidence)})
        picked += [name for name in pick(sheet, str(names.confidence), outcomes) if name not in picked]
        keep |= {str(names.confidence)}
    numerals, notes = Numerals(sheet), Notes()
    model = outcome(numerals, notes, names.model_reward, optional=past)
    human = outcome(numerals, notes, names.human_reward, optional=True)
    costs = outcome(numerals, notes, names.cost, optional=True, cost=True)
    if not past and np.isnan(human + costs).all():
        raise InvalidArgument(
            f"No row of {sheet.path} has both a {names.human_reward} and a {names.cost}: nobody was ever asked."
        )
    reader = ContextReader(numerals, notes, None if like is None else like.reader)
    contexts = reader.read_columns(picked, keep)
    times = None if names.time is None else times_of(numerals, notes, names.time)
    rewards = np.column_stack([model, human])
    doubts = [] if past else [*find_odd_rewards(sheet, names, rewards), *find_leaks(names, contexts, rewards, costs)]
    return Rows(sheet.path, contexts, rewards, costs, times, [*sheet.remarks, *notes.lines(), *doubts], reader)


def find_odd_rewards(sheet: Sheet, names: Names, rewards: Floats) -> list[str]:
    """Return a remark on rewards that are neither 0 nor 1, where nearly all are; they change the link."""
    odd = ~(np.isin(rewards, (0.0, 1.0)) | np.isnan(rewards))
    n, known = int(odd.sum()), int((~np.isnan(rewards)).sum())
    if not 0 < n <= max(1, ODD_SHARE * known) or known < MIN_ROWS:
        return []
    row, place = (int(each) for each in np.argwhere(odd)[0])
    column = (names.model_reward, names.human_reward)[place]
    return [
        f"All rewards but {n:,} of {known:,} are 0 or 1 ({rewards[row, place]:g} in row {sheet.rows[row]} of {column}):"
        " they count as numbers, not as right and wrong (link identity, not logistic). Correct the cell if it is a"
        " mistake."
    ]


def find_leaks(names: Names, contexts: ContextColumns, rewards: Floats, costs: Floats) -> list[str]:
    """Return remarks on context columns that say what came of a task: by what they predict, or by their names.

    >>> rng = np.random.default_rng(0)
    >>> rewards = (rng.random((100, 2)) < 0.7) * 1.0
    >>> columns = ContextColumns({"x_size": rng.random(100), "x_copy": rewards[:, 0]}, {}, {}, {})
    >>> for said in find_leaks(Names("x_*", "model", "human", "cost"), columns, rewards, rng.random(100)):
    ...     print(said)
    x_copy predicts model almost perfectly (100 %). If it is known only afterwards, leave it out: --context x_size.
    """
    outcomes = {names.model_reward: rewards[:, 0], names.human_reward: rewards[:, 1], names.cost: costs}
    columns = {name: rank_values(pl.Series(values).fill_nan(None)) for name, values in contexts.numbers.items()}
    found: dict[str, str] = {}
    for name in (*contexts.numbers, *contexts.categories):
        for outcome_name, y in outcomes.items():
            x = columns.get(name)
            share = share_of_order(x, y) if x is not None else share_of_levels(contexts.categories[name], y)
            if share >= LEAK:
                found[name] = (
                    f"{name} predicts {outcome_name} almost perfectly ({100 * share:.0f} %). If it is known only"
                    " afterwards"
                )
                break
        else:
            if is_known_afterwards(name):
                found[name] = f"{name} sounds like something that is known only after the decision. If it is"
    rest = [name for name in contexts.by_name if name not in found]
    how = f": --context {shlex.quote(','.join(rest))}" if 0 < len(rest) <= MANY else ""
    return [f"{said}, leave it out{how}." for said in found.values()]


def rank_values(values: pl.Series) -> Floats:
    """Return the ranks of values, ties in their middle; NaN where one is missing."""
    return values.rank().cast(pl.Float64).fill_null(np.nan).to_numpy()


def share_of_order(x: Floats, y: Floats) -> float:
    """Return the strength of the relation of ranks and an outcome, from 0 to 1: of 0 and 1 by the area under the curve.

    >>> x, y = np.arange(40.0), np.repeat([0.0, 1.0], 20)
    >>> share_of_order(x, y), share_of_order(x, -(x**3)), share_of_order(x, np.tile([0.0, 1.0], 20)) < 0.1
    (1.0, 1.0, True)
    """
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(y) < MIN_ROWS or y.min() == y.max() or x.min() == x.max():
        return 0.0
    if np.isin(y, (0.0, 1.0)).all():
        ones = int(y.sum())
        ranks = rank_values(pl.Series(x))
        above = (ranks[y == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(y) - ones))
        return float(abs(2 * above - 1))
    return float(abs(np.corrcoef(rank_values(pl.Series(x)), rank_values(pl.Series(y)))[0, 1]))


def share_of_levels(texts: list[str | None], y: Floats) -> float:
    """Return the share of the variance of an outcome that lies between the levels of a category, less that by chance.

    >>> levels = ["a", "b"] * 20
    >>> share_of_levels(levels, np.tile([0.0, 1.0], 20)), share_of_levels(levels, np.arange(40.0)) < 0.1
    (1.0, True)
    """
    rows = pl.DataFrame({"level": texts, "y": y}).drop_nans("y").with_columns(pl.col("level").fill_null(""))
    n, k = len(rows), rows["level"].n_unique() if len(rows) else 0
    total = float(((rows["y"] - rows["y"].mean()) ** 2).sum()) if n else 0.0
    if n < MIN_ROWS or k > n / 4 or total == 0.0:
        return 0.0
    within = rows.select(((pl.col("y") - pl.col("y").mean().over("level")) ** 2).sum()).item()
    return float(max(0.0, 1 - within / total * (n - 1) / (n - k)))


def is_known_afterwards(name: str) -> bool:
    """Return whether a column is called like something that is known only after a decision.

    >>> [is_known_afterwards(name) for name in ("human_label", "reviewMinutes", "ground truth", "predicted_label")]
    [True, True, True, False]
    """
    words = words_of(name)
    pairs = itertools.pairwise(words)
    of_review = any(REVIEWER.fullmatch(who) and OF_REVIEW.fullmatch(what) for who, what in pairs)
    return of_review or any(map(AFTERWARDS.fullmatch, words))


class Confidence(NamedTuple):
    """The column that is the model's confidence, and what is said about it."""

    column: str | None
    remark: str = ""


def find_confidence(names: Names, numbers: Mapping[str, Floats], past: Rows | None = None) -> Confidence:
    """Return the number column of a context that is the model's own confidence.

    Args:
        names: Its `confidence` is a column, "none", or None: then a column is looked for.
        numbers: The number columns of the tasks.
        past: Rows whose outcomes are known, if there are any.

    Raises:
        InvalidArgument: if the column that is named does not hold numbers.

    >>> columns = Names("x_*", "model_reward", "human_reward", "cost")
    >>> find_confidence(columns, {"x_age": np.array([30.0, 41, 52]), "x_score": np.array([0.5, 0.9, 0.7])}).remark
    "The column 'x_score' is taken as the model's confidence (--confidence none to switch that off)."
    """
    if names.confidence == NONE:
        return Confidence(None)
    if names.confidence is not None:
        if names.confidence not in numbers:
            raise InvalidArgument(f"The column {names.confidence!r} for the confidence does not hold numbers.")
        return Confidence(names.confidence)
    fitting = [name for name, values in numbers.items() if is_in_range(values)]
    strengths = {} if past is None else {name: correlation(past, name) for name in fitting}
    found = [name for name in fitting if is_confidence_name(name) and strengths.get(name, 0.0) > CONTRARY]
    if len(found) != 1 and strengths:
        clear = [name for name in found or fitting if strengths[name] > CLEAR]
        found = clear if len(clear) == 1 else found
    if not found:
        return Confidence(None)
    if len(found) > 1:
        both = (
            " and ".join(map(repr, found[:2])) if len(found) == 2 else join_first_names([repr(name) for name in found])
        )
        return Confidence(
            None, f"The columns {both} may be the model's confidence: none is taken as that. --confidence names one."
        )
    remark = f"The column {found[0]!r} is taken as the model's confidence (--confidence none to switch that off)."
    return Confidence(found[0], remark)


def is_confidence_name(name: str) -> bool:
    """Return whether a column is called like the model's confidence, in English or German.

    >>> [is_confidence_name(each) for each in ("x_conf", "modelConfidence", "P_max", "Konfidenz (%)", "uncertainty")]
    [True, True, True, True, False]
    >>> is_confidence_name("reviewer_confidence")
    False
    """
    words = words_of(name)
    pairs = map("".join, itertools.pairwise(words))  # p_max, max_prob
    return any(map(CONFIDENCE.fullmatch, (*words, *pairs))) and not any(map(OTHERS.fullmatch, words))


def words_of(name: str) -> list[str]:
    """Return the words that the name of a column is made of, in lower case."""
    return re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-zäöüß])(?=[A-ZÄÖÜ])", " ", name).lower())


def is_in_range(values: Floats) -> bool:
    """Return whether all values are within 0 and 1 or within 0 and 100, as those of a confidence.

    >>> is_in_range(np.array([0.5, 0.99, 0.7])), is_in_range(np.array([0.0, 1.0, 1.0])), is_in_range(np.array([620.0]))
    (True, False, False)
    """
    known = values[~np.isnan(values)]
    if not len(known) or (known == known[0]).all() or np.isin(known, (0.0, 1.0)).all():
        return False  # a constant, or a yes or no
    return bool(known.min() >= 0 and known.max() <= 100)


def correlation(past: Rows, name: str) -> float:
    """Return the rank correlation of a column and the model's past rewards, in standard errors; 0 of too few rows."""
    values, rewards = past.contexts.numbers.get(name, np.array([])), past.rewards[:, 0]
    if len(values) != len(rewards):
        return 0.0
    known = ~(np.isnan(values) | np.isnan(rewards))
    if known.sum() < MIN_PAST:
        return 0.0
    first, second = (pl.Series(each[known]).rank().to_numpy() for each in (values, rewards))
    if first.std() == 0 or second.std() == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1] * math.sqrt(known.sum()))
