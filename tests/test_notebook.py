"""The notebook in examples/ runs from a new kernel, and the outputs that it is kept with are those of its cells."""

import json
from pathlib import Path
from typing import Any

import pytest

from checks.notebook_page import NOTEBOOK, notebook_page


def texts(notebook: dict[str, Any]) -> list[str]:
    """Return what its cells print or show as text, without times and memory addresses."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return ["".join(output.get("text", "")) for output in outputs] + [kinds_of(output) for output in outputs]


def kinds_of(output: dict[str, Any]) -> str:
    return ", ".join(sorted(output.get("data", ())))


def test_the_notebook_runs_and_shows_what_it_is_kept_with(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    kept = json.loads(NOTEBOOK.read_text())
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None) if cell.cell_type != "code" else cell.update(outputs=[])
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert texts(notebook) == texts(kept)


def test_the_page_of_the_notebook_shows_its_code_and_its_outputs() -> None:
    page = notebook_page()
    assert page.count("```py\n") == 7
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "Verdict: default gains " in page
    assert "<b>Deferrer</b>" in page
