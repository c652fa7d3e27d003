"""An application, and its user's browser."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.end_session.applications import register_return
from tests.federation.api.relying import RelyingParty, add_relying_party
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user
from tests.support.tenants import Tenant


@pytest.fixture
async def till(acme: Tenant, browser: SamlBrowser, user: Account) -> RelyingParty:
    """An application with OpenID Connect. The application's user is signed in in `browser`."""
    application = await add_relying_party(acme, browser, "till")
    await register_return(application)
    await add_service_user(acme.ports, application.service, user.id, signed_in=False)
    await browser.sign_in()
    return application
