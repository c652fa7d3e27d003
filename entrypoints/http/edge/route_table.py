"""The application's routes, as the middleware needs them."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from entrypoints.http.edge.openapi import docs_of


class RouteTable:
    """The methods and the views for paths."""

    def __init__(self, app: QuartTrio) -> None:
        self._views = app.view_functions
        self._match = app.url_map.bind("localhost")
        rules = list(app.url_map.iter_rules())
        self._paths_for_any_origin = frozenset(rule.rule for rule in rules if docs_of(app.view_functions[rule.endpoint]).any_origin)
        self.methods = lru_cache(maxsize=1024)(self._methods)
        self.view = lru_cache(maxsize=1024)(self._view)

    def _methods(self, path: str) -> frozenset[str] | None:
        return None if path.startswith("//") else frozenset(self._match.allowed_methods(path)) or None

    def _view(self, path: str, method: str) -> Callable[..., Any] | None:
        if path.startswith("//"):
            return None
        try:
            endpoint, _ = self._match.match(path, method)
        except HTTPException:
            return None
        return self._views[endpoint]

    def changes_state(self, path: str) -> bool:
        view = self.view(path, "GET")
        return view is not None and docs_of(view).changes_state

    def allows_any_origin(self, path: str) -> bool:
        return path in self._paths_for_any_origin
