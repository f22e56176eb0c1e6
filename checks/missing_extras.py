"""In an environment without extras, whatever needs one says in one line which (`make dist`)."""

import subprocess
import sys
from pathlib import Path

from deferkit import DeferkitError, Deferrer, NeuralEmbedding, TreeEmbedding
from deferkit.extras import REQUIREMENTS, find_missing, needs

USES = {
    "study": "import deferkit.worlds",
    "serve": "import deferkit.serve.engine",
    "trees": "Deferrer(n_features=2, embedding=TreeEmbedding())",
    "networks": "Deferrer(n_features=2, embedding=NeuralEmbedding())",
    "torch": "Deferrer(n_features=2, embedding=NeuralEmbedding(module=lambda n: None))",
    "langgraph": "import deferkit.connectors.langgraph",
    "label_studio": "import deferkit.connectors.label_studio",
    "litellm": "import deferkit.connectors.litellm",
    "sklearn": "import deferkit.sklearn",
}
"""What needs a feature first; others, such as `postgres`, are met only where `serve` or `study` is there already."""


def said_by(code: str) -> str:
    """Return the error of a statement, which must be one line."""
    names = {each.__name__: each for each in (Deferrer, NeuralEmbedding, TreeEmbedding, needs)}
    try:
        exec(code, names)
    except DeferkitError as error:
        return str(error)
    raise AssertionError(f"{code} needs nothing")


def main() -> None:
    """Use every feature."""
    for feature, required in REQUIREMENTS.items():
        assert find_missing(feature), f"{feature}: its modules are there"
        said = said_by(USES.get(feature, f"needs({feature!r})"))
        assert said.endswith(f": pip install 'deferkit[{required.extra}]'."), said
        assert "\n" not in said, said
    command = subprocess.run(
        [Path(sys.executable).with_name("deferkit"), "run", "synthetic"], capture_output=True, text=True, check=False
    )
    assert command.returncode == 2, command
    assert command.stderr == "error: The command line needs typer and rich: pip install 'deferkit[cli]'.\n", command
    print(f"{len(REQUIREMENTS)} features name the extra that they need, in one line each")


if __name__ == "__main__":
    main()
