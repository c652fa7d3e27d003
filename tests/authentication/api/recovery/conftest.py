"""A member of acme who lost their factors."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.authentication.api.recovery.lost import LostUser
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, mark_created_by
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser
from tests.support.tenants import Tenant


@pytest.fixture
async def ada(app: QuartTrio, acme: Tenant, pool: Pool, sent: FakeMailTransport) -> LostUser:
    """A member whom acme created, with an authenticator app, a passkey, and a password."""
    account = await add_account(acme.ports)
    await acme.join("ada", account)
    await mark_created_by(pool, acme.org, account.id)
    holder = PasskeyUser(acme.api, acme.token("ada"))
    await holder.add()
    return LostUser(acme, account, await add_mfa(acme.ports, account), holder, FakeBrowser(app), sent)
