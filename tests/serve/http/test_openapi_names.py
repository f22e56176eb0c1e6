"""The OpenAPI document keeps its operations and schemas, and the comparison of two documents finds what differs."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checks.openapi_compare import current_document, find_differences, operation_ids

# Clients are generated from these names. A new operation or schema gets a line here; none is renamed or removed.
PINNED = json.loads((Path(__file__).parents[2] / "fixtures" / "openapi_names.json").read_text())
DOCUMENT = current_document()


def test_operations_keep_their_ids() -> None:
    assert operation_ids(DOCUMENT) == PINNED["operations"]
    assert len(set(PINNED["operations"].values())) == len(PINNED["operations"])


def test_schemas_keep_their_names() -> None:
    assert sorted(DOCUMENT["components"]["schemas"]) == PINNED["schemas"]


def test_a_document_does_not_differ_from_itself() -> None:
    assert not list(find_differences(DOCUMENT, copy.deepcopy(DOCUMENT)))


def spec_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]["PolicySpec"]
    return found


def decision_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"]["/v1/policies/{name}/decisions"]["post"]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda made: spec_of(made).update(description="Another text."),
        lambda made: spec_of(made)["properties"]["link"].update(description="Another text."),
        lambda made: decision_of(made).update(summary="Another", description="Another text."),
        lambda made: spec_of(made)["properties"]["representation"].update(enum=["auto", "linear", "neural"]),
        lambda made: spec_of(made)["properties"]["embedding"].update(anyOf=[{"type": "string"}]),
        lambda made: spec_of(made)["required"].reverse(),
        lambda made: decision_of(made)["parameters"].reverse(),
        lambda made: made["info"].update(version="99.0"),
    ],
    ids=[
        "schema text",
        "field text",
        "operation texts",
        "representation",
        "embedding",
        "order",
        "parameters",
        "version",
    ],
)
def test_texts_and_open_values_may_differ(change: Callable[[dict[str, Any]], Any]) -> None:
    made = copy.deepcopy(DOCUMENT)
    change(made)
    assert not list(find_differences(DOCUMENT, made))
    assert not list(find_differences(made, DOCUMENT))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda made: decision_of(made).update(operationId="choose"), "post > operationId"),
        (lambda made: made["components"]["schemas"].pop("PolicySpec"), "schemas > PolicySpec"),
        (lambda made: made["paths"].pop("/v1/policies/{name}/decisions"), "paths > /v1/policies/{name}/decisions"),
        (lambda made: decision_of(made)["responses"].pop("409"), "responses > 409"),
        (lambda made: decision_of(made)["parameters"].clear(), "parameters > path name"),
        (lambda made: spec_of(made)["properties"].pop("embedding"), "properties > embedding"),
        (lambda made: spec_of(made)["properties"]["embedding"].update(default="x"), "embedding > default"),
        (lambda made: spec_of(made)["properties"].update(description={"type": "string"}), "properties > description"),
        (lambda made: spec_of(made)["properties"]["link"].update(enum=["identity"]), "link > enum"),
        (lambda made: spec_of(made)["required"].append("link"), "required"),
        (lambda made: spec_of(made)["properties"]["budget"].update(default=None), "budget > default"),
        (lambda made: spec_of(made)["properties"]["budget"].update(default=False), "budget > default"),
    ],
)
def test_every_other_difference_is_found(change: Callable[[dict[str, Any]], Any], where: str) -> None:
    made = copy.deepcopy(DOCUMENT)
    change(made)
    for one, other in [(DOCUMENT, made), (made, DOCUMENT)]:
        found = list(find_differences(one, other))
        assert found
        assert all(where in line for line in found), found


def test_the_comparison_as_a_command(tmp_path: Path) -> None:
    made = copy.deepcopy(DOCUMENT)
    decision_of(made)["operationId"] = "choose"
    (tmp_path / "before.json").write_text(json.dumps(made))
    (tmp_path / "after.json").write_text(json.dumps(DOCUMENT))
    for other, code in [("before.json", 1), ("after.json", 0)]:
        words = ["checks.openapi_compare", str(tmp_path / other), str(tmp_path / "after.json")]
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("operationId" in done.stdout) == (code == 1)
