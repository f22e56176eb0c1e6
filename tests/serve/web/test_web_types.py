"""The types that the pages are checked with are those of the service."""

from checks.web_types import PAGE, types


def test_the_types_of_replies_are_those_of_the_openapi_document() -> None:
    assert PAGE.read_text() == types(), "python -m checks.web_types writes them"
