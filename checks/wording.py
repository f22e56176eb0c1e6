"""Check of names, docstrings, comments and texts of Python files for standard engineering English.

`python -m checks.wording [FOLDER OR FILE ...]` prints the findings in the given folders and files, by default
`src/deferkit`, and exits with 1 if there are any. A finding that is right as it is goes to `ALLOWED`, with a reason.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

STANDARD = {
    "unless given": "by default",
    "unless (it is|they are) given": "by default",
    "foresees?": "predict",
    "foreseen": "predicted",
    "foresaw": "predicted",
    "what is told": "the message, the reply",
    "(is|are) told of": "is notified of",
    "asks for": "requires, requests",
    "dear": "expensive",
    "dearer": "more expensive",
    "dearest": "most expensive",
    "lacks": "is missing",
    "those who": "callers, operators, reviewers",
    "that is none": "invalid, NaN",
    "sees to": "handles",
    "nobody's": "not owned",
    "of late": "recent",
    "stands in(?! suspense)": "is in",
    "(is|are) to last": "must last",
    "what it costs": "the cost",
    "beforehand": "in advance",
    "from before": "older than, created before",
    "so that what": "two sentences",
    "what is said of": "a noun",
    "what (stands|is) before": "a noun, such as middleware",
    "(is|are) good for": "is valid for, has the scopes",
    "(look|ask)s? no more": "stop, close",
    "the own": "their own, its own",
    "of whose": "whose, after the noun",
    "what has to be said": "the remarks",
    "came to as": "the result as",
}
"""What to write instead, by phrase (a regular expression); read in docstrings, comments and texts for users."""

CLAUSE = re.compile(r"(Return|Yield|Say|Tell|Give)s? (what|where|who|whom|whose|how|why|when|which|until)\b")
MODULE_CLAUSE = re.compile(r"(What|Who|Whose|Where|When|Why|How|Those)\b")
EXTREMES = (
    "MOST LEAST LARGEST LONGEST SHORTEST SMALLEST HIGHEST LOWEST BIGGEST GREATEST FEWEST".split()  # noqa: SIM905
)
EXTREME = re.compile(rf"_?({'|'.join(EXTREMES)})_")
DURATION = re.compile(r".*_(secs?|seconds|SECS?|SECONDS)")
POETIC = re.compile(r"(.*_)?(dear|dearer|dearest|foresee|foreseen|beforehand)(_.*)?")

PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        """
        about apart bare been begun booked bound brought coming cut done drawn due found free fresh given gone held kept
        known left lost made meant met missing over paid passed_on put read ready said seen sent set_aside shown shut
        spent taken tight told waiting whole written
        """,
    )
)
"""Words that are no verbs, beside those in -ed; "cut", "put" and "read" say too little without an object."""
VERBS_IN_ED = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "succeed"})
NOUNS = frozenset({"property", "cached_property", "computed_field", "setter"})
"""Decorators of functions whose names may be nouns."""

ALLOWED = {
    ("src/deferkit/learn/embed/training_set.py", "labelled"): "the old name, for embeddings of other packages",
    ("src/deferkit/learn/embed/training_set.py", "known"): "the old name, for embeddings of other packages",
    ("src/deferkit/worlds/base.py", "known"): "public: plug-ins and notebooks call TaskStream.known()",
    ("src/deferkit/client/client.py", "read"): "public: Client.read",
    ("src/deferkit/client/reviews.py", "held"): "public: client.reviews.held",
    ("src/deferkit/connectors/litellm.py", "settled"): "public: DeferringRouter.settled",
    ("src/deferkit/errors.py", "expected"): "the exception of a wrong argument, read as in `raise expected(...)`",
    (
        "src/deferkit/learn/exploration.py",
        "printed",
    ): "public: Exploration.printed, the widths as the paper prints them",
    ("src/deferkit/types.py", "unlimited"): "public: Budget.unlimited",
    ("src/deferkit/worlds/small_tables.py", "mixed"): "a generator of small tables, called like its tables",
    ("src/deferkit/worlds/small_tables.py", "skewed"): "a generator of small tables, called like its tables",
    ("src/deferkit/cli/demo/tasks.py", "those who"): "a simulated comment of the demo: its text is data",
}
"""Reasons of findings that stay, by file and the name or phrase that was found."""


class Finding(NamedTuple):
    """A place whose wording breaks a rule."""

    path: str
    line: int
    found: str
    """The name or phrase, as in `ALLOWED`."""
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}: {self.advice}"


def text_findings(path: str, line: int, text: str) -> Iterator[Finding]:
    """Yield the nonstandard phrases of a text.

    >>> [str(each) for each in text_findings("a.py", 3, "Processes; all cores unless\\ngiven")]
    ["a.py:4: 'unless given': write: by default"]
    """
    for phrase, better in STANDARD.items():
        for match in re.finditer(rf"\b{phrase}\b".replace(" ", r"\s+(?:#\s*)?"), text, re.IGNORECASE):
            at = line + text.count("\n", 0, match.end())
            found = re.sub(r"\s+(#\s*)?", " ", match[0]).lower()
            yield Finding(path, at, found, f"write: {better}")


def comment_findings(path: str, source: str) -> Iterator[Finding]:
    """Yield the nonstandard phrases of comments; adjacent comment lines are one text."""
    block: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] == start + len(block):
            block.append(token.string)
            continue
        yield from text_findings(path, start, "\n".join(block))
        block, start = [token.string], token.start[0]
    yield from text_findings(path, start, "\n".join(block))


def docstring_findings(path: str, node: ast.AST) -> Iterator[Finding]:
    """Yield a docstring that begins with a clause instead of a noun."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    first = (ast.get_docstring(node) or "").strip().partition("\n")[0]
    line = getattr(node, "lineno", 1)
    if CLAUSE.match(first):
        yield Finding(path, line, first, "a verb and a noun, not a clause")
    if isinstance(node, ast.Module) and MODULE_CLAUSE.match(first):
        yield Finding(path, line, first, "the topic of the module, not a clause")


def is_noun(decorator: ast.expr) -> bool:
    """Return whether functions with a decorator may be called by nouns."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name in NOUNS


def is_participle(name: str) -> bool:
    """Return whether the name of a function is a participle or an adjective, not a verb.

    >>> [name for name in ("known", "_compared", "compare", "embed", "paired_cells") if is_participle(name)]
    ['known', '_compared']
    """
    bare = name.strip("_")
    return bare in PARTICIPLES or (bare.endswith("ed") and "_" not in bare and bare not in VERBS_IN_ED)


def name_findings(path: str, node: ast.AST) -> Iterator[Finding]:
    """Yield names of functions, limits, durations and variables that break a rule."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if is_participle(node.name) and not any(map(is_noun, node.decorator_list)):
            yield Finding(path, node.lineno, node.name, "functions are verbs with an object")
        names, line = [node.name], node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        names, line = [node.id], node.lineno
        if EXTREME.match(node.id):
            yield Finding(path, line, node.id, "limits are MAX_ or MIN_")
        if DURATION.fullmatch(node.id):
            yield Finding(path, line, node.id, "durations end in _s")
    elif isinstance(node, ast.arg):
        names, line = [node.arg], node.lineno
    else:
        return
    yield from (Finding(path, line, name, "a name of standard words") for name in names if POETIC.fullmatch(name))


def source_findings(path: str, source: str) -> list[Finding]:
    """Return the findings in a source text, in order of lines, each once.

    Args:
        path: The path in the findings.
        source: Python source.
    """
    found = set(comment_findings(path, source))
    for node in ast.walk(ast.parse(source)):
        found.update(docstring_findings(path, node))
        found.update(name_findings(path, node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(text_findings(path, node.lineno, node.value))
    return sorted(found, key=lambda finding: (finding.line, finding.found))


def check(places: Sequence[Path]) -> list[str]:
    """Return the findings that are not allowed, and the entries of `ALLOWED` that no finding needs, as lines.

    Args:
        places: Folders and files.
    """
    paths = sorted({path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))})
    names = [path.resolve().relative_to(ROOT).as_posix() for path in paths]
    found = [each for path, name in zip(paths, names, strict=True) for each in source_findings(name, path.read_text())]
    used = {(each.path, each.found) for each in found}
    faults = [str(each) for each in found if (each.path, each.found) not in ALLOWED]
    unused = sorted(key for key in ALLOWED if key[0] in names and key not in used)
    return faults + [f"{path}: {entry!r} is allowed, but not found: delete the entry" for path, entry in unused]


def main() -> int:
    """Print the findings; return the exit code."""
    places = [Path(argument) for argument in sys.argv[1:]] or [ROOT / "src/deferkit"]
    if missing := [str(place) for place in places if not place.exists()]:
        print(f"no such folder or file: {', '.join(missing)}", file=sys.stderr)
        return 2
    lines = check(places)
    print(*lines, f"{len(lines)} findings", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
