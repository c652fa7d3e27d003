"""An application that signs its user out (OpenID Connect RP-Initiated Logout 1.0)."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from tests.federation.api.end_session.applications import END_SESSION
from tests.federation.conformance.client import Client, Grant
from tests.federation.conformance.person import Outcome
from tests.support.builders import Answer

BYE: Final = "https://first.example.com/post_logout_redirect"
STATE: Final = "s" * 128


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A client after a sign-in, with a registered post-logout redirect URI."""

    client: Client
    grant: Grant

    async def request_logout(self, **changes: str | None) -> Outcome:
        """Send the user to the end-session endpoint. Omit parameters with the value None."""
        fields = {"id_token_hint": self.grant.tokens["id_token"], "post_logout_redirect_uri": BYE, "state": STATE, **changes}
        return await self.client.person.open(f"{END_SESSION}?{urlencode({name: value for name, value in fields.items() if value})}")

    async def check_returned(self, outcome: Outcome, parameters: dict[str, str]) -> None:
        assert (outcome.page, outcome.address, outcome.query) == (None, BYE, parameters)
        assert await self.client.is_signed_out()

    async def check_error_page(self, outcome: Outcome) -> None:
        """Check that our page says why the request is refused, and that the user stays signed in."""
        assert outcome.page is not None
        assert (outcome.page.status, "post_logout_redirect_uri" in outcome.page.text) == (400, True)
        assert not await self.client.is_signed_out()

    async def check_question(self, outcome: Outcome) -> Answer:
        """Check that our page asks the user, and agree. Return the page that follows: the application is not called."""
        assert outcome.page is not None
        assert (outcome.page.status, "<h1>Sign out of " in outcome.page.text) == (200, True)
        assert not await self.client.is_signed_out()
        after = await self.client.person.agree(outcome.page)
        assert after.page is not None
        return await self.check_signed_out(after)

    async def check_signed_out(self, outcome: Outcome) -> Answer:
        assert outcome.page is not None
        assert (outcome.page.status, "<h1>You're signed out</h1>" in outcome.page.text) == (200, True)
        assert await self.client.is_signed_out()
        return outcome.page
