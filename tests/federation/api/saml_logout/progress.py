"""A single logout in progress in a browser, and functions that continue it."""

from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.federation.saml.model import messages as saml_messages
from tests.support.builders import EMAIL, Answer, run_sql
from tests.support.saml import SamlApplication, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml.browser import LogoutWalk, RedirectedMessage, SamlBrowser, redirect_target, statuses

LOGOUT_COOKIE = "gatehouse-saml-logout"
both_bindings = pytest.mark.parametrize("by_form", [False, True])


async def send_request(
    browser: SamlBrowser, application: SamlApplication, name_id: str, *indexes: str, by_form: bool = False, id_: str | None = None
) -> Answer:
    """Deliver a LogoutRequest that the application sent, or an attacker in its name."""
    message = logout_request(application, browser.now(), name_id, *indexes, ID=id_ or saml_messages.new_message_id())
    address = redirect_url(f"{application.path}/slo", message, RelayState="there")
    if by_form:
        fields = {"SAMLRequest": encode_base64(message), "RelayState": "there"}
        address = redirect_target(await browser.post_cross_site(f"{application.path}/slo", **fields), 303)
    return await browser.open(address)


class LogoutInProgress:
    """A logout that `shop` started.

    The browser is at the second application, and can deliver more requests.
    """

    def __init__(self, walk: LogoutWalk, sessions: dict[str, Any], step: Answer) -> None:
        self.walk, self.browser, self.sessions, self.step = walk, walk.browser, sessions, step
        request = walk.pending_request(step)
        assert request is not None
        self.first, self.request_id = request
        walk.notified.append(self.first.slug)
        self.rest = [walk.applications[slug] for slug in walk.applications if slug not in ("shop", self.first.slug)]

    async def send_request(self, application: SamlApplication, *, by_form: bool = False, id_: str | None = None) -> Answer:
        session = self.sessions[application.slug]
        return await send_request(self.browser, application, session.name_id, session.session_index, by_form=by_form, id_=id_)

    async def finish(self, step: Answer) -> Answer:
        """Finish the logout from this step.

        The first application's late response still counts.
        """
        if self.walk.pending_request(step) != (self.first, self.request_id):
            response = logout_response(self.first, self.browser.now(), self.request_id)
            redirect_target(await self.browser.open(redirect_url(f"{self.first.path}/slo", response, "SAMLResponse")))
            return await self.walk.finish(step)
        self.walk.notified.clear()
        return await self.walk.finish(step)


async def start_logout(walk: LogoutWalk) -> LogoutInProgress:
    """Sign the browser in at all applications, and send a LogoutRequest from `shop` with the id "_begun"."""
    sessions = await walk.sign_in()
    session = sessions["shop"]
    step = await send_request(walk.browser, walk.applications["shop"], session.name_id, session.session_index, id_="_begun")
    return LogoutInProgress(walk, sessions, step)


def final_statuses(step: Answer, application: SamlApplication, request_id: str) -> list[str]:
    """Return the status codes in the LogoutResponse to this request."""
    message = RedirectedMessage(redirect_target(step))
    assert message.root.get("InResponseTo") == request_id
    return statuses(step, application)


async def logout_rows(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool, "select to_jsonb(l), to_jsonb(r) from saml_logouts l join saml_logout_requests r on r.logout_id = l.id order by r.request_id"
    )


async def no_logout_is_stored(pool: Pool) -> bool:
    counts = await run_sql(pool, "select (select count(*) from saml_logouts) + (select count(*) from saml_logout_requests)")
    return counts == [(0,)]


async def sign_in_again(browser: SamlBrowser, application: SamlApplication, email: str = EMAIL) -> Any:
    await browser.sign_in(email)
    return await browser.sign_on(application)
