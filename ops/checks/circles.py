"""Check that no modules import each other in a circle: `python -m ops.checks.circles`. Imports for annotations count, too."""

import sys
from collections.abc import Iterator

import grimp


def find_circles(graph: grimp.ImportGraph) -> Iterator[list[str]]:
    """Yield the modules in every circle. A module imports all modules in its circle, directly or indirectly."""
    for module in sorted(graph.modules):
        circle = sorted({module} | graph.find_upstream_modules(module) & graph.find_downstream_modules(module))
        if len(circle) > 1 and circle[0] == module:
            yield circle


if __name__ == "__main__":
    layers = "core", "ports", "adapters", "actors", "entrypoints"
    circles = list(find_circles(grimp.build_graph(*layers, cache_dir=None, exclude_type_checking_imports=False)))
    for circle in circles:
        print("These modules import each other:", ", ".join(circle))
    sys.exit(bool(circles))
