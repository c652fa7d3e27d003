"""The share that requests have in places that all organizations share: by their credentials, never by what they name (security N-11)."""

from collections.abc import Iterator
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Lease, Pool
from core.kernel.shares import OWN, Share, current_share, of_account, of_organization, of_stranger
from tests.support.builders import Api, add_account
from tests.support.direct import PEER, ask
from tests.support.tenants import Tenant

STRANGER: Final = of_stranger(PEER)


@pytest.fixture
def used(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Share]]:
    """The shares that used the database, in their order and without repeats."""
    shares: list[Share] = []
    connection = pool.connection

    def noting() -> Lease:
        if current_share.get() not in shares:
            shares.append(current_share.get())
        return connection()

    monkeypatch.setattr(pool, "connection", noting)
    yield shares
    assert current_share.get() == OWN, "the share ends with its request"


async def test_a_stranger_never_uses_the_share_of_an_organization(app: QuartTrio, acme: Tenant, used: list[Share]) -> None:
    used.clear()  # the fixtures' shares
    path = f"/api/organizations/{acme.slug}/members"
    for token in ("x.y.z", "scim_x", None):
        assert (await ask(app, "GET", path, token=token)).status == 401
        assert (await ask(app, "GET", "/scim/v2/Users", token=token)).status == 401
    login, json = b'{"email": "nobody@example.com", "password": "not the password"}', [(b"content-type", b"application/json")]
    assert (await ask(app, "POST", "/api/auth/login", body=login, headers=json)).status == 401
    assert used == [STRANGER]


async def test_a_member_uses_the_share_of_the_organization(app: QuartTrio, acme: Tenant, used: list[Share]) -> None:
    used.clear()  # the fixtures' shares
    path = f"/api/organizations/{acme.slug}/members"
    assert (await ask(app, "GET", path, token=acme.token("admin"))).status == 200
    assert used == [STRANGER, of_organization(acme.org)]


async def test_a_user_without_an_organization_has_a_share_of_their_own(app: QuartTrio, api: Api, acme: Tenant, used: list[Share]) -> None:
    account = await add_account(acme.ports)
    token = (await api.login()).json["access_token"]
    used.clear()
    assert (await ask(app, "GET", "/api/organizations", token=token)).status == 200
    assert used == [STRANGER, of_account(account.id)]
