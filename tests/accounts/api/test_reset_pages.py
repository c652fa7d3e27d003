"""The page for a new password, and the email afterwards, name the factors that still count."""

from typing import Any

import pytest
from quart_trio import QuartTrio

from core.accounts.model.security_notices import UNDO_TTL
from ports import Ports
from tests.accounts.api.test_reset_and_policies import AT_HIGH_RISK, CASES, LATER, reset, store_policy
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser
from tests.support.builders import EMAIL, NEW_PASSWORD, Api, add_account, deliver, link, sign_in
from tests.support.passkeys.users import PasskeyUser
from tests.support.tenants import Tenant


@pytest.mark.parametrize("is_second", [False, True], ids=["passkey", "passkey as second factor"])
@pytest.mark.parametrize(("place", "document"), [*CASES, ("organization", AT_HIGH_RISK)])
async def test_the_page_names_a_recovery_only_where_the_new_password_is_not_enough(
    acme: Tenant,
    api: Api,
    app: QuartTrio,
    ports: Ports,
    sent: FakeMailTransport,
    clock: FakeClock,
    place: str | None,
    document: dict[str, Any],
    is_second: bool,
) -> None:
    """The passkey is too old to be removed by the reset. The email says the same about sign-ins to the account."""
    user = await add_account(ports)
    await PasskeyUser(api, (token := (await sign_in(ports, user)).access_token)).add()
    if is_second:
        assert (await api.call("PUT", "/api/user/passkeys/second-factor", {"enabled": True}, token=token)).status == 200
    if place is not None:
        await store_policy(acme, place, user, document)
    clock.advance(UNDO_TTL)
    assert (await api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    await deliver(ports)
    page = (await FakeBrowser(app).open(f"/auth/reset-password?token={link(sent.newest('/auth/reset-password', EMAIL))}")).text
    is_enough = not is_second and (place is None or document in (LATER, AT_HIGH_RISK))
    told = "Only a recovery replaces them: ask an admin of your organization, or the operator of this site." in page
    assert ("linked accounts stay." in page, told) == (True, not is_enough)
    await reset(api, app, ports, sent, on_page=True)
    await deliver(ports)
    assert ("Only a recovery" in sent.newest("/auth/undo", EMAIL).text) is is_second
    assert (await api.login(EMAIL, NEW_PASSWORD)).json.get("mfa_required", False) is is_second
