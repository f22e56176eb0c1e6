"""A docstring in the Google style as Markdown: sections as lists, examples and indented code as fenced blocks."""

import re
from collections.abc import Iterator

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Warns|Yields):$")
ENTRY = re.compile(r"^    (\*{0,2}\w+(?: \([^)]*\))?): (.*)$")
NAMED = ("Args", "Attributes", "Raises", "Warns")  # whose entries begin with a name
TITLES = {"Args": "Parameters"}


def plain(text: str) -> str:
    r"""Return a sentence with what Markdown would read as markup escaped, code in backticks left as it is.

    >>> plain("An array [n, 2] of `rewards[0]`, a_b < 3 and x * y * z")
    'An array \\[n, 2\\] of `rewards[0]`, a\\_b &lt; 3 and x \\* y \\* z'
    """
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\[\]*_])", r"\\\1", p).replace("<", "&lt;") for p in pieces)


def cell(text: str) -> str:
    r"""Return a text for a cell of a table.

    >>> cell("Record<string, number> | null")
    'Record&lt;string, number> \\| null'
    """
    return plain(" ".join(text.split())).replace("|", "\\|")


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of a docstring in blocks, which blank lines separate."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def fenced(language: str, lines: list[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def section(title: str, lines: list[str]) -> str:
    """Return a section of a docstring: a list of its entries, or its text."""
    head = f"**{TITLES.get(title, title)}**"
    if title not in NAMED:
        return f"{head}: {plain(' '.join(line.strip() for line in lines))}"
    entries: list[list[str]] = []
    for line in lines:
        if found := ENTRY.match(line):
            entries.append([f"`{found[1]}`: {plain(found[2])}"])
        else:
            entries[-1].append(plain(line.strip()))
    return "\n".join([head, "", *(f"- {' '.join(entry)}" for entry in entries)])


def markdown(docstring: str) -> str:
    """Return a docstring, as `inspect.getdoc` has it, as Markdown.

    >>> print(markdown("Do it.\\n\\nArgs:\\n    x: A number,\\n        above 0."))
    Do it.
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    - `x`: A number, above 0.
    """
    found: list[tuple[str, list[str]]] = []  # kind, lines; code that goes on after a blank line is one block
    for block in blocks(docstring.splitlines()):
        if SECTION.match(block[0]):
            kind, lines = block[0].rstrip(":"), block[1:]
        elif block[0].startswith("    ") and found and found[-1][0] in (*NAMED, "Returns", "Yields"):
            found[-1][1].extend(block)
            continue
        elif block[0].startswith(">>>"):
            kind, lines = "pycon", block
        elif block[0].startswith("    "):
            kind, lines = "python", [line[4:] for line in block]
        elif all(line.startswith("- ") or line.startswith("  ") for line in block):
            kind, lines = "list", block
        else:
            kind, lines = "text", block
        if found and found[-1][0] == kind in ("pycon", "python"):
            found[-1][1].extend(["", *lines])
        else:
            found.append((kind, lines))
    return "\n\n".join(shown(kind, lines) for kind, lines in found)


def shown(kind: str, lines: list[str]) -> str:
    if kind in ("pycon", "python"):
        return fenced(kind, lines)
    if kind in ("text", "list"):
        return "\n".join(plain(line) for line in lines)
    return section(kind, lines)
