"""Fixtures for HTTP tests: accounts, tenants, a platform owner, an impersonator, browsers, and the logs."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest
import structlog
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import WEBSUITE
from core.kernel.errors import StorageDown
from core.kernel.roles import OWNER, RoleName
from entrypoints import logs
from entrypoints.http.app import Edge
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser
from tests.support.builders import Api, add_account, add_member, add_organization, add_platform_owner, sign_in
from tests.support.database import Database
from tests.support.impersonator import Support
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.platform import Platform
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlApplications, SamlBrowser
from tests.support.scim import Directory, directory_of
from tests.support.tenants import CAST, PreparedTenants, Tenant, Tenants, TenantSnapshots


@pytest.fixture
async def user(ports: Ports) -> Account:
    """An account with a password."""
    return await add_account(ports)


@pytest.fixture
async def factor(ports: Ports, user: Account) -> Authenticator:
    """The second factor for `user`."""
    return await add_mfa(ports, user)


@pytest.fixture
async def holder(api: Api, ports: Ports, user: Account) -> PasskeyUser:
    """A fresh session for `user`, with an authenticator for passkeys."""
    return PasskeyUser(api, (await sign_in(ports, user)).access_token)


@pytest.fixture
def tenants(api: Api, ports: Ports, pool: Pool) -> Tenants:
    return Tenants(api, ports, pool)


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    """The tenants' members, by name. Test modules that need more override this."""
    return CAST


@pytest.fixture(scope="session")
def tenant_snapshots() -> TenantSnapshots:
    return {}


@pytest.fixture
def prepared_tenants(
    tenants: Tenants, cast: Mapping[str, RoleName], worker_database: Database, tenant_snapshots: TenantSnapshots
) -> PreparedTenants:
    return PreparedTenants(tenants, cast, worker_database, tenant_snapshots)


@pytest.fixture
async def acme(prepared_tenants: PreparedTenants) -> Tenant:
    return await prepared_tenants.add("acme")


@pytest.fixture
async def other_tenant(prepared_tenants: PreparedTenants) -> Tenant:
    return await prepared_tenants.add("twin")


@pytest.fixture
async def directory(acme: Tenant) -> Directory:
    """The directory that provisions acme's users."""
    return await directory_of(acme)


@pytest.fixture
async def platform(api: Api, ports: Ports, clock: FakeClock) -> Platform:
    account = await add_platform_owner(ports)
    return Platform(api, account, (await sign_in(ports, account)).access_token, clock)


@pytest.fixture
async def support(api: Api, ports: Ports, pool: Pool) -> Support:
    account = await add_platform_owner(ports, "support@platform.example")
    return Support(api, ports, pool, account, await sign_in(ports, account), await add_account(ports, password=None))


@pytest.fixture
def browser(app: QuartTrio, clock: FakeClock, edge: Edge) -> SamlBrowser:
    """A browser without a session."""
    return SamlBrowser(app, clock, edge.base_url)


@pytest.fixture
async def owner_browser(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser in which the owner of the organization acme, a new account, is signed in."""
    account = await add_account(ports)
    await add_member(pool, await add_organization(pool, "acme"), account.id, OWNER, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in()
    return browser


@pytest.fixture
def applications(ports: Ports, pool: Pool, acme: Tenant, user: Account) -> SamlApplications:
    return SamlApplications(ports, pool, acme, user)


@pytest.fixture
async def shop(applications: SamlApplications) -> SamlApplication:
    """A SAML application that `user` can use."""
    return await applications.add("shop")


@pytest.fixture
def provider(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[FakeProvider]:
    """A running identity provider: `websuite`, or the provider that a test asks for with `indirect`."""
    with FakeProvider(getattr(request, "param", WEBSUITE), now=lambda: clock.now().timestamp()) as fake:
        yield fake


@pytest.fixture
def provider_sign_in(browser: SamlBrowser, provider: FakeProvider, pool: Pool) -> ProviderSignIn:
    """The redirects from the browser to the configured identity provider and back."""
    return ProviderSignIn(browser, provider, pool)


@pytest.fixture
def outage_after_commit(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function. After it is called, reads fail from the next commit on."""
    storage: Any = type(ports.storage)
    transaction = storage.transaction

    def down(_: object) -> NoReturn:
        raise StorageDown

    @asynccontextmanager
    async def last_transaction(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async with transaction(*args, **options) as tx:
            yield tx
        monkeypatch.setattr(storage, "reading", down)

    return lambda: monkeypatch.setattr(storage, "transaction", last_transaction)


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore the logging configuration after a test in which the service configures it."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()
    logs._access = logs._log_access
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, logs._ToStructlog):
            root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.NOTSET)
