"""Applications with single logout, and a logout that is in progress."""

import pytest

from tests.federation.api.saml_logout.progress import LogoutInProgress, start_logout
from tests.support.saml import SamlApplication
from tests.support.saml.browser import LogoutWalk, SamlApplications, SamlBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def walk(browser: SamlBrowser, shop: SamlApplication, applications: SamlApplications, other_tenant: Tenant) -> LogoutWalk:
    """Four applications in two organizations. `shop` starts the logout."""
    other_applications = [
        await applications.add("blog"),
        await applications.add("wiki", other_tenant),
        await applications.add("desk", other_tenant),
    ]
    return LogoutWalk(browser, shop, *other_applications)


@pytest.fixture
async def in_progress(walk: LogoutWalk) -> LogoutInProgress:
    return await start_logout(walk)


@pytest.fixture
async def blog(applications: SamlApplications) -> SamlApplication:
    return await applications.add("blog")
