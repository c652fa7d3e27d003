"""The authentication of SCIM requests, which also has them logged."""

from typing import Any, Final

from quart import g, request

from core.kernel.callers import ScimClient
from core.kernel.values import parse_id
from core.provisioning import tokens as scim_tokens
from core.provisioning.model import directories
from core.setup import proposals
from entrypoints.http.base.context import anonymous, app_context, request_record
from entrypoints.http.base.request_record import RequestRecord
from entrypoints.http.edge.directory.log import DirectoryCall

CONFIG_PATH: Final = "/scim/v2/ServiceProviderConfig"


async def authenticate_directory(secret: str) -> ScimClient:
    """Return the directory with this SCIM token, and have the request logged, also if it is refused.

    A token that a set-up link proposes gets the supported features only.
    """
    try:
        token = await scim_tokens.load_record(app_context().ports, secret)
    except directories.ScimTokenInvalid:
        route = request_record().route
        called = f"{request.method} {route}"
        return await proposals.answer_directory(app_context().ports, anonymous(), secret, called, asks_for_config=route == CONFIG_PATH)
    _log_call(token)
    return scim_tokens.authenticate(anonymous(), token)


def _log_call(token: directories.ScimTokenRecord) -> None:
    """Log the current request after its response, with the organization of this token, which may be expired."""
    record, context = request_record(), app_context()
    call = DirectoryCall(token.org_id, token.token_id, context.ports.clock.now(), _path_of(record.route, request.view_args or {}))
    if request.query_string and (text := request.args.get("filter")) is not None:
        call.attributes = directories.attributes_of_filter(text)
    g.directory_call = call

    async def write(ended: RequestRecord) -> None:
        await context.directory_log.write(call.org_id, call.ended(ended.method, ended.status))

    record.after_response = write


def _path_of(route: str, arguments: dict[str, Any]) -> str:
    """Return a route's path, with arguments that are ids. Other arguments could be user names."""
    for name, value in arguments.items():
        route = route.replace(f"<{name}>", str(value) if parse_id(str(value)) is not None else f"{{{name}}}")
    return route
