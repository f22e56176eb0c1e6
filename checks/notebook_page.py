"""The page of the site that shows the notebook in examples/, with its outputs."""

import base64
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"


def notebook_page(path: Path = NOTEBOOK) -> str:
    """Return a notebook as Markdown: its texts, its code, and what its cells show."""
    parts = [f"<!-- made of examples/{path.name} -->"]
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.replace("](../docs/", "]("))
        else:
            parts += [f"```py\n{text}\n```", *map(output_of, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def output_of(output: dict[str, Any]) -> str:
    """Return an output of a cell as HTML or as text.

    >>> output_of({"text": ["said"]}), output_of({"data": {"text/html": ["<p>1</p>", "<p>2</p>"]}})
    ('```text\\nsaid\\n```', '<div><p>1</p><p>2</p></div>')
    """
    data = {kind: "".join(text) for kind, text in output.get("data", {"text/plain": output.get("text", "")}).items()}
    if "image/svg+xml" in data:
        picture = base64.b64encode(data["image/svg+xml"].encode()).decode()
        return f'<img alt="chart" src="data:image/svg+xml;base64,{picture}">'
    if "text/html" in data:
        return "<div>" + "".join(line.strip() for line in data["text/html"].splitlines()) + "</div>"
    return f"```text\n{data['text/plain'].rstrip()}\n```"
