"""The page that transfers the ownership of an organization."""

import re

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.principals import Role
from ports import Ports
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, add_account, add_member, add_organization

PAGE = "/app/organizations/acme/settings/transfer"


async def test_the_chosen_admin_stays_chosen_after_a_mistyped_name(app: QuartTrio, ports: Ports, pool: Pool) -> None:
    acme = await add_organization(pool, "acme")
    people = {}
    for name, role in (("owner", Role.OWNER), ("ada", Role.ADMIN), ("eve", Role.ADMIN)):
        people[name] = await add_account(ports, f"{name}@example.com", PASSWORD)
        await add_member(pool, acme, people[name].id, role, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("owner@example.com", PASSWORD)
    for name in ("ada", "eve"):
        answer = await browser.submit(PAGE, PAGE, new_owner_user_id=str(people[name].id), confirmation="Acne")
        assert answer.status == 400
        assert re.findall(r'<option value="([^"]+)" selected>', answer.text) == [str(people[name].id)]
