"""Labels of HTTP requests in metrics and logs."""

from typing import Final

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "OTHER"  # one label for all other methods and statuses
UNKNOWN_ROUTE: Final = "(unknown)"  # one label for all unknown paths, so that a scan adds no labels (security L-4)
