"""The code in the guides of connectors (docs/connectors) runs as it is written."""

import re
from pathlib import Path
from typing import Any

GUIDES = Path(__file__).parents[1] / "docs" / "connectors"


def run_guide(name: str, replaced: dict[str, str] | None = None) -> dict[str, Any]:
    """Run the code of a guide, with other addresses; return its variables."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (GUIDES / name).read_text(), flags=re.DOTALL))
    assert code
    for old, new in (replaced or {}).items():
        assert old in code
        code = code.replace(old, new)
    variables: dict[str, Any] = {"__name__": "guide"}
    exec(compile(code, name, "exec"), variables)
    return variables
