"""The rows for a SAML application."""

from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.federation.saml.model.sign_on import LOGOUT_TTL, LogoutInitiator, SamlLogout, SamlSession
from core.kernel.callers import ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.values import digest
from tests.federation.storage.saml.rows import CONFIGURATION, LOGOUT_BROWSER, NAME_ID, REQUEST, StoredSaml, sign_on
from tests.support.rows import NOW, account, add, session
from tests.support.saml import new_certificate


@pytest.fixture
async def saml_rows(storage: Postgres, pool: Pool, shop: ServiceContext) -> StoredSaml:
    user = await add(storage, account())
    browser = session(user.id)
    flow = sign_on(shop)
    logout = SamlLogout(
        id=uuid4(),
        browser_hash=LOGOUT_BROWSER,
        initiator=LogoutInitiator(org_id=shop.org_id, service_id=shop.id, request_id="_leave", relay_state="bye", after="/app/account"),
        created_at=NOW,
        expires_at=NOW + LOGOUT_TTL,
    )
    part = SamlSession(org_id=shop.org_id, service_id=shop.id, session_index="_index", name_id=NAME_ID)
    certificate = await new_certificate(NOW)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(browser, digest("session cookie"))
        await tx.saml.configure(shop.org_id, shop.id, CONFIGURATION, NOW)
        await tx.saml.add_certificate(shop.org_id, shop.id, certificate)
        assert await tx.saml_sign_ons.begin(flow, REQUEST)
        assert await tx.saml_sign_ons.persistent_name_id(shop.org_id, shop.id, user.id, NAME_ID.value, NOW) == NAME_ID.value
        index = tx.saml_sign_ons.add_session(browser.id, shop.org_id, shop.id, "_index", NAME_ID, NOW)
        assert await tx.saml_logouts.add(logout)
        assert await index == "_index"
        assert await tx.saml_logouts.add_request(logout.id, "_request", user.id, part, None)
    return StoredSaml(storage, pool, shop, user.id, browser.id, flow, logout, part)
