"""The checker of wording finds a planted example of each of its rules, and nothing in standard English."""

import sys
from pathlib import Path

import pytest

from checks import wording
from checks.wording import ALLOWED, EXTREMES, PARTICIPLES, STANDARD, Finding, check, main, source_findings

PHRASES = {
    "Processes; all cores unless given.",
    "All of them, unless it is given.",
    "Whichever foresees better.",
    "Outcomes that can be foreseen.",
    "Nobody foresaw it.",
    "Repeat what is told.",
    "The caller is told of it.",
    "The guarantee asks for more.",
    "It starts too dear.",
    "It is dearer.",
    "The dearest task.",
    "A row lacks cells.",
    "The queue, for those who answer.",
    "A price that is none.",
    "The core sees to it.",
    "A reply that is nobody's to keep.",
    "The spending of late.",
    "The format stands in the title.",
    "A budget that is to last for a week.",
    "Return the task and what it costs.",
    "Costs that are known beforehand.",
    "A service from before.",
    "Add it, so that what was saved can be loaded.",
    "A list of what is said of keys.",
    "This is what stands before the application.",
    "A key that is good for everything.",
    "Look no more.",
    "A reviewer has replaced the own answer.",
    "Decisions of whose outcomes it is silent.",
    "A line for what has to be said.",
    "The number that a column came to as text.",
}


def found_in(source: str) -> list[str]:
    return [each.found for each in source_findings("planted.py", source)]


def test_a_phrase_of_each_kind_is_planted() -> None:
    found = [each.advice for text in PHRASES for each in source_findings("planted.py", f"# {text}\n")]
    assert set(found) == {f"write: {better}" for better in STANDARD.values()}
    assert len(found) == len(PHRASES) >= len(STANDARD)


@pytest.mark.parametrize("text", sorted(PHRASES))
def test_phrases_are_found_in_docstrings_comments_and_texts(text: str) -> None:
    for source in (
        f'"""{text}"""\n',
        f'class A:\n    """{text}"""\n',
        f'def find_it():\n    """Return it.\n\n    {text}\n    """\n',
        f'a = 1\n"""{text}"""\n',
        f"a = 1  # {text}\n",
        f'help = "{text}"\n',
        f'raise ValueError(f"{{name}}: {text}")\n',
    ):
        [finding] = source_findings("planted.py", source)
        assert finding.advice.startswith("write: "), source


def test_phrases_are_found_across_lines_and_joined_texts() -> None:
    assert found_in('def find_it():\n    """Return it; all of them unless\n    given."""\n') == ["unless given"]
    assert found_in("# the budget is to\n# last for a week\n") == ["is to last"]
    assert found_in('help = "all cores unless"\\\n    " given"\n') == ["unless given"]
    assert found_in("a = 1  # unless\nb = 2\nc = 3  # given\n") == []


def test_findings_have_their_line() -> None:
    source = '"""Topic."""\n\n\ndef find_it():\n    """Return it.\n\n    All of them unless\n    given.\n    """\n'
    [finding] = source_findings("planted.py", source)
    assert str(finding) == "planted.py:8: 'unless given': write: by default"


@pytest.mark.parametrize("verb", ["Return", "Returns", "Yield", "Say", "Tell", "Give"])
@pytest.mark.parametrize("word", ["what", "where", "who", "whom", "whose", "how", "why", "when", "which", "until"])
def test_docstrings_of_clauses_are_found(verb: str, word: str) -> None:
    for kind in ("def find_it(self):", "async def find_it(self):", "class A:"):
        assert found_in(f'{kind}\n    """{verb} {word} a route needs."""\n') == [f"{verb} {word} a route needs."]


@pytest.mark.parametrize("word", ["What", "Who", "Whose", "Where", "When", "Why", "How", "Those"])
def test_docstrings_of_modules_that_are_clauses_are_found(word: str) -> None:
    assert found_in(f'"""{word} trials run."""\n') == [f"{word} trials run."]


@pytest.mark.parametrize("name", sorted(PARTICIPLES | {"compared", "_blocked"}))
def test_functions_that_are_no_verbs_are_found(name: str) -> None:
    for kind in ("def", "async def"):
        assert found_in(f"{kind} {name}(): ...\n") == [name]
        assert found_in(f"class A:\n    {kind} {name}(self): ...\n") == [name]


@pytest.mark.parametrize("decorator", ["property", "functools.cached_property", "cached_property", "left.setter"])
def test_properties_may_be_nouns(decorator: str) -> None:
    assert found_in(f"class A:\n    @{decorator}\n    def left(self): ...\n") == []


@pytest.mark.parametrize("prefix", EXTREMES)
def test_limits_are_max_or_min(prefix: str) -> None:
    for name in (f"{prefix}_COST", f"_{prefix}_COST"):
        assert found_in(f"{name} = 1\n") == [name]
        assert found_in(f"{name}: int = 1\n") == [name]
        assert found_in(f"FIRST, {name} = 1, 2\n") == [name]


@pytest.mark.parametrize("name", ["WAIT_SECONDS", "lease_seconds", "TIMEOUT_SECS", "pause_sec"])
def test_durations_end_in_s(name: str) -> None:
    assert found_in(f"{name} = 1\n") == [name]


@pytest.mark.parametrize("name", ["dearest", "dear", "foreseen", "known_beforehand", "dearest_cost"])
def test_names_are_of_standard_words(name: str) -> None:
    assert found_in(f"{name} = 1\n") == [name]
    assert found_in(f"def find_it({name}): ...\n") == [name]
    assert found_in(f"def {name}_task(): ...\n") == [f"{name}_task"]


def test_standard_english_is_not_found() -> None:
    source = '''"""Routes of the service."""

MAX_COST, MIN_COST, LEASE_S = 3, 1, 60  # by default


class Route:
    """Return address of a reply; whatever it costs, it is predicted in advance."""

    @property
    def known(self):
        """Whether the route is known."""

    def embed(self):
        """Return whether the views are embedded, dearly."""


def feed_known(seeds):
    """Yield the security requirement of a route."""
    what = "A cost that stands in suspense."
'''
    assert found_in(source) == []


def test_findings_fail_unless_they_are_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "ALLOWED", {("src/one.py", "known"): "public"})
    monkeypatch.setattr(sys, "argv", ["wording", str(tmp_path / "src")])
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text("def known(): ...\n")
    assert main() == 0
    (tmp_path / "src" / "two.py").write_text("def known(): ...\n")
    assert main() == 1
    assert check([tmp_path / "src"]) == ["src/two.py:1: 'known': functions are verbs with an object"]
    assert check([tmp_path / "src" / "one.py"]) == []
    (tmp_path / "src" / "one.py").write_text("def find_known(): ...\n")
    assert "src/one.py: 'known' is allowed, but not found: delete the entry" in check([tmp_path / "src"])
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["wording", str(tmp_path / "none")])
    assert main() == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_every_allowed_finding_has_a_reason() -> None:
    for (path, _), reason in ALLOWED.items():
        assert (wording.ROOT / path).is_file()
        assert len(reason.split()) >= 2


def test_a_finding_is_one_line() -> None:
    assert "\n" not in str(Finding("a.py", 1, "known", "functions are verbs"))
