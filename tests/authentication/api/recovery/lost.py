"""A user who lost their factors, and the steps in their recovery."""

import json
import re
from dataclasses import dataclass
from html import unescape
from typing import Any
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import new_id
from core.tenancy.model.sign_in_policies import SignInPolicy
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import SIGN_IN, FakeBrowser, form_token, leads_to
from tests.support.builders import Answer, add_account, deliver, link, mark_created_by
from tests.support.mfa import Authenticator, add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PasskeyUser
from tests.support.tenants import Tenant

RECOVER = "/auth/recover"
WRONG = "AAAAA-AAAAA"
REASON = "She lost her phone, and came to my desk."


@dataclass(slots=True)
class LostUser:
    """An acme member, with the factors that they lost, and the browser in which they recover."""

    acme: Tenant
    account: Account
    factor: Authenticator
    holder: PasskeyUser
    browser: FakeBrowser
    sent: FakeMailTransport

    @property
    def path(self) -> str:
        """The API path for admins."""
        return f"{self.acme.path}/members/{self.account.id}/recovery"

    async def issue(self, by: str = "admin") -> str:
        """Start the recovery, and return the code."""
        answer = await self.acme.api.post(self.path, {"reason": REASON}, token=self.acme.token(by))
        assert answer.status == 201, answer.text
        code: str = answer.json["code"]
        return code

    async def link(self, path: str = RECOVER) -> str:
        """Return the token from the newest email with a link to this path."""
        await deliver(self.acme.ports)
        return link(self.sent.newest(path, self.account.email))

    async def open(self, token: str, code: str, browser: FakeBrowser | None = None) -> Answer:
        """Open the link, and send the code."""
        browser = browser or self.browser
        page = await browser.open(f"{RECOVER}?token={token or WRONG}")
        assert page.status == 200
        return await browser.send(RECOVER, form_token=form_token(page), token=token, code=code)

    async def recover(self) -> str:
        """Open a new recovery, and return the path where the user sets a factor up."""
        code = await self.issue()
        return leads_to(await self.open(await self.link(), code))

    async def send_app(self, path: str, browser: FakeBrowser | None = None) -> Answer:
        """Set up the page's authenticator app."""
        browser = browser or self.browser
        page = await self.browser.open(path)
        return await browser.send(f"{path}/app", form_token=form_token(await browser.open(SIGN_IN)), code=app_of(self, page).code())

    async def send_passkey(self, path: str, authenticator: SoftAuthenticator) -> Answer:
        page = await self.browser.open(path)
        credential = json.dumps(authenticator.create(options_of(page)))
        return await self.browser.send(f"{path}/passkey", form_token=form_token(page), credential=credential)

    async def send_ended(self, path: str) -> Answer:
        """Send a code to a page that has ended."""
        token = form_token(await self.browser.open(SIGN_IN))
        return await self.browser.send(f"{path}/app", form_token=token, code="123456")

    async def require(self, service_id: UUID | None = None, org_id: UUID | None = None, /, **document: Any) -> None:
        """Give an organization, acme by default, or its application this sign-in policy, which takes effect now."""
        policy = SignInPolicy(
            id=new_id(),
            org_id=org_id or self.acme.org,
            service_id=service_id,
            rules=Rules.read(document),
            changed_at=self.acme.ports.clock.now(),
            changed_by=None,
        )
        async with self.acme.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.sign_in_policies.put(policy)


async def add_lost_user(acme: Tenant, browser: FakeBrowser, sent: FakeMailTransport) -> LostUser:
    """Add a member that acme created, with an authenticator app, a passkey, and a password."""
    account = await add_account(acme.ports)
    await acme.join("ada", account)
    await mark_created_by(acme.pool, acme.org, account.id)
    holder = PasskeyUser(acme.api, acme.token("ada"))
    await holder.add()
    return LostUser(acme, account, await add_mfa(acme.ports, account), holder, browser, sent)


def app_of(user: LostUser, page: Answer) -> Authenticator:
    """Return an app with the page's secret, and the backup codes on the page."""
    secret = re.search(r'<code class="secret">([A-Z2-7 ]+)</code>', page.text)
    assert secret, page.text
    return Authenticator(secret[1].replace(" ", ""), user.acme.ports.clock)


def options_of(page: Answer) -> Any:
    """Return the options for the page's ceremony."""
    options = re.search(r'data-passkey="create" data-options="([^"]+)"', page.text)
    assert options, page.text
    return json.loads(unescape(options[1]))


def backup_codes_of(page: Answer) -> list[str]:
    return re.findall(r"<li><code>([A-Z0-9-]+)</code></li>", page.text)


def says(answer: Answer, refusal: type[Exception]) -> bool:
    return answer.status == 400 and str(refusal.__doc__) in answer.text
