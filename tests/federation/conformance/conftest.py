"""The person in the tests, and the application that they sign in to."""

import pytest

from core.accounts.model.accounts import Account
from core.federation.oauth.model.authorization import ResponseMode
from ports import Ports
from tests.accounts.profiles import set_profile
from tests.federation.api.relying import add_relying_party
from tests.federation.conformance.client import Client
from tests.federation.conformance.person import Person
from tests.support.browser import FakeBrowser
from tests.support.builders import run_sql
from tests.support.tenants import Tenant


@pytest.fixture
async def person(browser: FakeBrowser, user: Account, ports: Ports) -> Person:
    """A person who has not signed in yet, with values for all claims."""
    await set_profile(ports, user.id)
    return Person(browser)


@pytest.fixture(params=[ResponseMode.QUERY, ResponseMode.FORM_POST])
def mode(request: pytest.FixtureRequest) -> ResponseMode:
    """The plan's response mode. Basic OP uses the default, and Form Post Basic OP uses `form_post`."""
    mode: ResponseMode = request.param
    return mode


@pytest.fixture
async def client(acme: Tenant, person: Person, mode: ResponseMode) -> Client:
    """An application with ID tokens without user claims, as for the suite (OpenID Connect Core section 5.4)."""
    return await add_client(acme, person, mode, "first")


@pytest.fixture
async def second_client(acme: Tenant, person: Person, mode: ResponseMode) -> Client:
    return await add_client(acme, person, mode, "second")


async def add_client(tenant: Tenant, person: Person, mode: ResponseMode, slug: str) -> Client:
    party = await add_relying_party(tenant, person.browser, slug)
    await run_sql(tenant.pool, "update services set id_token_claims = false where id = %s", party.service)
    return Client(party, person, mode)
