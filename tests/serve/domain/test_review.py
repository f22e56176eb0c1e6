"""Review forms and reward rules, against calculations by hand."""

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deferkit.errors import InvalidArgument
from deferkit.serve.domain.policy_learner import check_review, with_defaults
from deferkit.serve.domain.review import (
    FormField,
    FormOption,
    MatchRule,
    ReviewDocument,
    TableRule,
    check_answer,
    judge,
    majority_index,
)
from deferkit.serve.domain.spec import BudgetSpec, PolicySpec

VALUES = ["ham", "spam", "other"]
OPTIONS = [FormOption(value=value) for value in VALUES]
SPEC = PolicySpec(name="p", features=1, budget={"minutes": BudgetSpec(total=10, horizon=10, max_cost=1)})

bounds = st.one_of(st.none(), st.integers(-2, 5).map(float))
Kind = Literal["choice", "choices", "boolean", "number", "text"]
kinds: st.SearchStrategy[Kind] = st.sampled_from(["choice", "choices", "boolean", "number", "text"])
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.floats(-3, 6),
    st.sampled_from(["", " ", "ham", "spam", "x", "long text"]),
    st.lists(st.sampled_from([*VALUES, "x", 1]), max_size=4),
    st.dictionaries(st.sampled_from(["a", "b"]), st.booleans(), max_size=1),
)


@st.composite
def fields(draw: st.DrawFn, name: str) -> FormField:
    kind = draw(kinds)
    low, high = draw(bounds), draw(bounds)
    bounded = kind in ("choices", "number", "text")
    return FormField(
        name=name,
        kind=kind,
        options=OPTIONS if kind.startswith("choice") else [],
        required=draw(st.booleans()),
        min=low if bounded else None,
        max=high if bounded else None,
    )


def fits(field: FormField, value: Any) -> bool:
    """Whether a value is an answer to a field, spelled out case by case."""
    low = -1e9 if field.min is None else field.min
    high = 1e9 if field.max is None else field.max
    if value is None or (field.kind, value) in (("text", ""), ("choices", [])):
        return not field.required
    distinct = type(value) is list and len({*value}) == len(value)
    return {
        "boolean": value is True or value is False,
        "choice": type(value) is str and value in VALUES,
        "number": type(value) in (int, float) and low <= value <= high,
        "text": type(value) is str and low <= len(value) <= high and not (field.required and value.isspace()),
        "choices": distinct and all(each in VALUES for each in value) and low <= len(value) <= high,
    }[field.kind]


@given(st.data())
def test_an_answer_is_taken_if_every_field_fits(data: st.DataObject) -> None:
    form = [data.draw(fields(name)) for name in ("a", "b")]
    answer = data.draw(st.one_of(plain, st.dictionaries(st.sampled_from(["a", "b", "c"]), plain)))
    wanted = isinstance(answer, dict) and set(answer) <= {"a", "b"}
    wanted = wanted and all(fits(field, answer.get(field.name)) for field in form)
    try:
        check_answer(form, answer)
        taken = True
    except InvalidArgument:
        taken = False
    assert taken == wanted


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan")], ids=["large", "low", "inf", "nan"])
def test_a_number_that_no_double_holds_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="is a number"):
        check_answer([FormField(name="n", kind="number")], {"n": value})


labels = st.one_of(st.sampled_from(["ham", "spam", "2"]), st.booleans(), st.integers(0, 3), st.floats(0, 3))


@given(st.lists(labels, min_size=1, max_size=5), st.one_of(st.none(), labels))
def test_the_match_rule_pays_for_the_label_that_most_gave(given_labels: list[Any], model: Any) -> None:
    def same(a: Any, b: Any) -> bool:
        return names(a) == names(b)

    def names(a: Any) -> str:
        if a is True or a is False:
            return "true" if a else "false"
        return a if isinstance(a, str) else f"{a:g}" if float(a).is_integer() else repr(float(a))

    votes = [sum(same(a, b) for b in given_labels) for a in given_labels]
    first = votes.index(max(votes))
    wanted = {"human": max(votes) / len(votes)}
    if model is not None:
        wanted["model"] = 1.0 if same(model, given_labels[first]) else 0.0
    assert MatchRule().rewards(given_labels, model, "human") == wanted
    assert majority_index(given_labels) == first


TABLE = {
    "spam": {"spam": {"model": 1.0, "human": 0.9}, "ham": {"model": 0.0, "human": 1.0}},
    "ham": {"spam": {"model": 0.25}},
}


@pytest.mark.parametrize(
    ("answers", "model", "wanted"),
    [
        (["spam"], "spam", {"model": 1.0, "human": 0.9}),
        (["ham", "spam", "spam"], "ham", {"model": 0.0, "human": 1.0}),
        (["ham", "spam"], "spam", {"model": 0.25}),  # even: the first
        (["ham"], "ham", {}),
        (["spam"], None, {}),
        (["spam"], {"label": "spam", "score": 0.9}, {"model": 1.0, "human": 0.9}),
        (["spam"], {"score": 0.9}, {}),
    ],
)
def test_the_table_rule_looks_rewards_up(answers: list[str], model: Any, wanted: dict[str, float]) -> None:
    document = ReviewDocument(
        form=[FormField(name="label", kind="choice", options=OPTIONS), FormField(name="why", kind="text")],
        reward_rule=TableRule(table=TABLE),
    )
    given_answers = [{"label": label, "why": str(place)} for place, label in enumerate(answers)]
    assert judge(document, given_answers, model, "human").rewards == wanted


def test_the_answer_that_is_used_has_the_label_that_most_gave() -> None:
    document = ReviewDocument(
        form=[FormField(name="label", kind="text", required=False), FormField(name="why", kind="text")],
        reward_rule=MatchRule(),
    )
    answers = [{"why": "?"}, {"label": "a", "why": "1"}, {"label": "b", "why": "2"}, {"label": "b", "why": "3"}]
    found = judge(document, answers, "b", "ann")
    assert found.used == 2
    assert found.rewards == {"ann": 2 / 3, "model": 1.0}
    assert judge(document, [{"why": "?"}], "b", "ann") == (None, {})


def document(**changed: Any) -> dict[str, Any]:
    return {"form": [{"name": "label", "kind": "choice", "options": [{"value": "a"}, {"value": "b"}]}]} | changed


BAD: dict[str, dict[str, Any]] = {
    "no field": document(form=[]),
    "a field twice": document(form=[{"name": "a", "kind": "text"}] * 2),
    "no options": document(form=[{"name": "a", "kind": "choice"}]),
    "an option twice": document(form=[{"name": "a", "kind": "choices", "options": [{"value": "x"}] * 2}]),
    "options of a text": document(form=[{"name": "a", "kind": "text", "options": [{"value": "x"}]}]),
    "bounds of a boolean": document(form=[{"name": "a", "kind": "boolean", "min": 1}]),
    "bounds that cross": document(form=[{"name": "a", "kind": "number", "min": 2, "max": 1}]),
    "an unknown kind": document(form=[{"name": "a", "kind": "date"}]),
    "a name with a space": document(form=[{"name": "a b", "kind": "text"}]),
    "too many fields": document(form=[{"name": f"f{n}", "kind": "text"} for n in range(21)]),
    "an unknown resource": document(timer={"resource": "euros"}),
    "an unknown decider": document(reward_rule={"kind": "table", "rewards": {"a": {"b": {"nobody": 1}}}}),
    "a reward out of range": document(reward_rule={"kind": "table", "rewards": {"a": {"b": {"model": 2}}}}),
    "an unknown rule": document(reward_rule={"kind": "guess"}),
    "an unknown setting": document(colour="red"),
    "long guidelines": document(guidelines="x" * 20_001),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_review_document_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises((InvalidArgument, msgspec.ValidationError)):
        check_review(msgspec.structs.replace(SPEC, review=msgspec.convert(BAD[bad], ReviewDocument)))


def test_a_review_document_that_makes_sense_is_taken() -> None:
    good = document(
        timer={"resource": "minutes", "unit_s": 30},
        reward_rule={"kind": "table", "rewards": {"a": {"b": {"model": 0, "human": 1}}}},
        model_answer="after",
        payload="chat",
    )
    check_review(msgspec.structs.replace(SPEC, review=msgspec.convert(good, ReviewDocument)))
    with pytest.raises(InvalidArgument, match="rewards of this policy are from 0 to 0.5"):
        check_review(
            msgspec.structs.replace(
                SPEC,
                reward_range=(0.0, 0.5),
                review=msgspec.convert(document(reward_rule={"kind": "match"}), ReviewDocument),
            )
        )


def test_new_policies_keep_payloads_for_thirty_days_and_old_ones_for_ever() -> None:
    made = with_defaults(SPEC)
    assert (made.retention_s, SPEC.retention_used, made.retention_used) == (2_592_000.0, None, 2_592_000.0)
    assert with_defaults(msgspec.structs.replace(SPEC, retention_s=None)).retention_used is None
    assert SPEC.with_defaults_of(made).retention_s == made.retention_s
    assert "retention_s" not in msgspec.json.decode(msgspec.json.encode(SPEC))
    assert "review" not in msgspec.json.decode(msgspec.json.encode(made))
