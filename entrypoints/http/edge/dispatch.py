"""Quart without the features that Gatehouse does not use, and the routes as the middleware needs them.

For every request, Quart would open and save a session, send six signals, and look for functions to run before and after
a blueprint's requests. This costs more than the rest of Quart's work.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import urlsplit

from quart import Quart, Response
from quart.ctx import AppContext, RequestContext
from quart.globals import _cv_app, _cv_request, request_ctx
from quart.routing import QuartRule
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as NoSuchRoute

from core.kernel.values import is_printable
from entrypoints import bind
from entrypoints.http.base.context import app_context, request_record
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import declaration
from entrypoints.http.edge.errors import prefers_page
from entrypoints.http.edge.openapi import docs_of

_HOOKS: Final = ("before_request_funcs", "after_request_funcs", "teardown_request_funcs", "url_value_preprocessors")

# Longer paths are not kept with their route, so that a client cannot fill the memory with them.
LONGEST_KEPT_PATH: Final = 256


class _Rule(QuartRule):
    """A route without the code that builds its URL from its name. Compiling that code is most of the work for a route."""

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return _refuse_to_build


def _refuse_to_build(*_: object, **__: object) -> tuple[str, str]:
    raise NotImplementedError("url_for is not available: write the path")


class LeanQuart(QuartTrio):
    """Quart that calls only the view, the error handler, and the functions for `after_this_request`."""

    url_rule_class = _Rule  # type: ignore[assignment]  # as in Quart
    numeric_hosts: frozenset[str] = frozenset()  # pages at these hosts redirect to the base URL (`loopback_hosts`)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._adapter = self.url_map.bind("localhost")
        self._match_kept = lru_cache(maxsize=1024)(self._match)

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> None:
        """Return no adapter: `match` looks up routes. The framework's adapter also parses the Host header in every request."""

    def match(self, path: str, method: str) -> tuple[Any, Mapping[str, Any]]:
        """Return a path's route and its arguments. Raises: HTTPException."""
        return self._match_kept(path, method) if len(path) <= LONGEST_KEPT_PATH else self._match(path, method)

    def _match(self, path: str, method: str) -> tuple[Any, Mapping[str, Any]]:
        return self._adapter.match(path, method, return_rule=True)

    def request_context(self, request: Any) -> RequestContext:
        return _RequestContext(self, request)

    async def full_dispatch_request(self, request_context: RequestContext | None = None) -> Any:
        """Return the response from the view or from the error handler."""
        context = request_context or request_ctx
        request = context.request
        try:
            # The framework would strip leading slashes, and find a route.
            if request.scope["path"].startswith("//") or not is_printable(request.path):
                raise NoSuchRoute
            if request.routing_exception is not None:
                raise request.routing_exception
            assert request.url_rule is not None, "without a rule, there is a routing exception"
            view: Any = self.view_functions[request.url_rule.endpoint]
            if self.numeric_hosts and self._is_page_at_numeric_host(request, view):
                result: Any = redirect(app_context(self).base_url + _target_of(request))
            else:
                request_record().route = request.url_rule.rule
                result = await view(**(request.view_args or {}))
        except (Exception, BaseExceptionGroup) as error:
            result = await self.handle_user_exception(error)
        return await self.finalize_request(result, request_context)

    def _is_page_at_numeric_host(self, request: Any, view: Any) -> bool:
        """Return whether a browser opens a page at a loopback address instead of `localhost`, which has the cookies and passkeys."""
        if request.method not in ("GET", "HEAD") or request.headers.get("Host") not in self.numeric_hosts:
            return False
        return prefers_page(view, request.path, request.headers.get("Accept"))

    async def finalize_request(self, result: Any, request_context: RequestContext | None = None, from_error_handler: bool = False) -> Any:
        response: Any = result if isinstance(result, Response) else await self.make_response(result)
        for function in (request_context or request_ctx)._after_request_functions:
            response = await self.ensure_async(function)(response)
        return response


def loopback_hosts(base_url: str) -> frozenset[str]:
    """Return the Host headers for the loopback addresses if the base URL's host is `localhost`, or nothing."""
    parts = urlsplit(base_url)
    if parts.hostname != bind.LOCALHOST:
        return frozenset()
    hosts = (f"[{address}]" if address.version == 6 else str(address) for address in bind.LOOPBACK_ADDRESSES)
    return frozenset(parts.netloc.replace(bind.LOCALHOST, host) for host in hosts)


def _target_of(request: Any) -> str:
    """Return path and query as the client sent them."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


class _RequestContext(RequestContext):
    """The request and its route, without a session."""

    async def push(self) -> None:
        self._tokens = _cv_app.set(AppContext(self.app)), _cv_request.set(self)
        self.match_request()

    def match_request(self) -> None:
        request = self.request
        try:
            request.url_rule, arguments = cast("LeanQuart", self.app).match(request.path, request.method)
            request.view_args = dict(arguments)
        except HTTPException as error:
            request.routing_exception = error

    async def pop(self, exc: BaseException | None = None) -> None:
        app_token, request_token = self._tokens
        _cv_request.reset(request_token)
        _cv_app.reset(app_token)


def check_hooks(app: LeanQuart) -> None:
    """Check that the application has no hook functions that are never called."""
    kinds = [kind for kind in _HOOKS if any(getattr(app, kind).values())]
    if kinds:
        raise ValueError(f"these functions are never called: {', '.join(kinds)}")


def check_every_route(app: Quart) -> None:
    """Check that every route has an access decorator, and declares its effect if it can change something."""
    wrong = []
    for rule in app.url_map.iter_rules():
        try:
            access = declaration.access_of(app.view_functions[rule.endpoint])
        except ValueError as error:
            wrong.append(f"{rule.rule}: {error}")
            continue
        if (rule.methods or set()) - declaration.SAFE_METHODS and (access.declared or access.default) is None:
            wrong.append(f"{rule.rule}: it does not declare its effect, such as SHOWS or CHANGES (entrypoints/http/edge/access/effects.py)")
    if wrong:
        raise ValueError("; ".join(sorted(wrong)))


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
