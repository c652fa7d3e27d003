"""Pages that ask for the email address first, because its domain can lead to an organization's connection."""

from collections.abc import Mapping
from typing import Final

from quart import Response

from core.authentication.flow.model import Flow
from core.federation.connections import routing
from core.kernel.connections import ConnectionRef
from core.kernel.values import Email
from entrypoints.http.base.context import app_context, ports
from entrypoints.http.base.redirects import redirect
from entrypoints.http.pages.flow.flows import connection_path

# The button with which a page was sent that asks for the address. Other pages have no such field.
STEP: Final = "step"
ADDRESS: Final = "address"
OWN_WAYS: Final = "password"  # the user wants to use a password, also where the domain leads to a connection


async def asks_address_first() -> bool:
    """Return whether sign-in pages ask for the address alone."""
    return await routing.asks_address_first(ports(), app_context().known_routes)


async def find_connection(flow: Flow, form: Mapping[str, str], email: Email) -> ConnectionRef | None:
    """Return the connection to which the address in a form leads, or None, also if the user wants another way, or links an account."""
    if form.get(STEP) == OWN_WAYS or flow.connection_link is not None or not await asks_address_first():
        return None
    return await routing.find_connection(ports(), flow, email.domain)


async def lead_to_connection(flow: Flow, form: Mapping[str, str], email: Email) -> Response | None:
    """Return the redirect to the connection to which the address in a form leads, or None."""
    connection = await find_connection(flow, form, email)
    return None if connection is None else redirect(connection_path(flow, connection.id, login_hint=email))
