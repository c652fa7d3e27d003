"""Quart without the features that Gatehouse does not use.

For each request, Quart would open and save a session, send six signals, and look for functions to
run before and after the requests of a blueprint. This costs more than the rest of Quart's work.
"""

from typing import Any, Final

from quart import Response
from quart.ctx import AppContext, RequestContext
from quart.globals import _cv_app, _cv_request, request_ctx
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from werkzeug.exceptions import NotFound as NoSuchRoute
from werkzeug.routing import MapAdapter

from core.kernel.values import is_printable
from entrypoints.http.edge.context import request_record

_HOOKS: Final = ("before_request_funcs", "after_request_funcs", "teardown_request_funcs", "url_value_preprocessors")


class LeanQuart(QuartTrio):
    """Quart that calls only the view, the error handler, and the functions of `after_this_request`."""

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Look up routes by path and method only. The framework's adapter also parses the Host header of every request."""
        if request is None:
            return None
        return MapAdapter(self.url_map, "localhost", "/", "", request.scheme, request.path, request.method)

    def request_context(self, request: Any) -> RequestContext:
        return _RequestContext(self, request)

    async def full_dispatch_request(self, request_context: RequestContext | None = None) -> Any:
        """Return the response of the view or of the error handler."""
        context = request_context or request_ctx
        request = context.request
        try:
            # The framework would strip leading slashes, and find a route.
            if request.scope["path"].startswith("//") or not is_printable(request.path):
                raise NoSuchRoute
            if request.routing_exception is not None:
                raise request.routing_exception
            assert request.url_rule is not None, "without a rule, there is a routing exception"
            request_record().route = request.url_rule.rule
            view: Any = self.view_functions[request.url_rule.endpoint]
            result = await view(**(request.view_args or {}))
        except (Exception, BaseExceptionGroup) as error:
            result = await self.handle_user_exception(error)
        return await self.finalize_request(result, request_context)

    async def finalize_request(self, result: Any, request_context: RequestContext | None = None, from_error_handler: bool = False) -> Any:
        response: Any = result if isinstance(result, Response) else await self.make_response(result)
        for function in (request_context or request_ctx)._after_request_functions:
            response = await self.ensure_async(function)(response)
        return response


class _RequestContext(RequestContext):
    """The request and its route, without a session."""

    async def push(self) -> None:
        self._tokens = _cv_app.set(AppContext(self.app)), _cv_request.set(self)
        self.match_request()

    async def pop(self, exc: BaseException | None = None) -> None:
        app_token, request_token = self._tokens
        _cv_request.reset(request_token)
        _cv_app.reset(app_token)


def check_hooks(app: LeanQuart) -> None:
    """Check that the application has no functions of the kinds that are never called.

    Raises: ValueError that names their kinds.
    """
    kinds = [kind for kind in _HOOKS if any(getattr(app, kind).values())]
    if kinds:
        raise ValueError(f"these functions are never called: {', '.join(kinds)}")
