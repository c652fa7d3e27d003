"""The check for import circles."""

import grimp

from ops.checks.circles import find_circles


def test_each_circle_is_named_once() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in ("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("f", "g"), ("g", "f"):
        graph.add_import(importer=importer, imported=imported)
    assert list(find_circles(graph)) == [["a", "b", "c"], ["f", "g"]]
