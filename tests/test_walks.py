"""The usual operations cross few files."""

from checks.walks import measure

MAX_FILES = {
    "Deferrer.decide and observe": 2,
    "HTTP decision, vector, model": 33,
    "HTTP decision, named features, deferred": 37,
    "HTTP review answer": 39,
}


def test_no_walk_crosses_more_files_than_it_did() -> None:
    walks = measure(commands=False)
    assert set(walks) == set(MAX_FILES)
    assert all(walk.calls for walk in walks.values())
    longer = {name: sorted(walk.visited) for name, walk in walks.items() if walk.files > MAX_FILES[name]}
    assert longer == {}
