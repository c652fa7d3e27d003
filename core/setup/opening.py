"""Opening a set-up link in one browser, and the reader of an opened link.

A page that is only opened changes nothing: mail scanners follow links.
"""

import hmac
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts.model import email_queue
from core.authentication.model import login as login_model
from core.kernel import errors, values
from core.kernel.callers import SetupLinkCaller
from core.kernel.causes import Caller
from core.setup import events
from core.setup.model import links
from core.tenancy.model.settings import Design
from ports import Ports

REFUSED_STATES: Final = {links.SetupLinkState.EXPIRED: links.SetupLinkExpired, links.SetupLinkState.OPEN: links.SetupLinkOpened}


@dataclass(frozen=True, slots=True)
class OpenableLink:
    """A link that no browser has opened yet, with its organization's design."""

    link: links.SetupLink
    design: Design | None


async def look_up(ports: Ports, token: str) -> OpenableLink:
    """Return the link with this token. Raises: SetupLinkEnded, also if there is no such link; SetupLinkExpired, SetupLinkOpened."""
    async with ports.storage.reading() as read:
        link = await read.setup_links.by_token(values.digest(token)) or errors.refuse(links.SetupLinkEnded)
        state = link.state(ports.clock.now())
        if state is not links.SetupLinkState.WAITING:
            raise REFUSED_STATES.get(state, links.SetupLinkEnded)
        return OpenableLink(link, await read.branding.design(link.org_id))


async def open_embedded(ports: Ports, caller: Caller, token: str) -> str:
    """Bind an embedded link to the caller's browser, and return the cookie's secret. Raises: SetupLinkEnded."""
    link = (await look_up(ports, token)).link
    if link.kind is not links.SetupLinkKind.EMBEDDED:
        raise links.SetupLinkEnded
    return await _bind(ports, caller, link, ports.clock.now())


async def send_code(ports: Ports, caller: Caller, token: str) -> None:
    """Email a code to a link's recipient. The code replaces the earlier code. Raises: SetupLinkEnded, TooManyCodes; Limited."""
    link, now = (await look_up(ports, token)).link, ports.clock.now()
    recipient = link.recipient or errors.refuse(links.SetupLinkEnded)
    code, salt = login_model.new_code(), ports.passwords.new_salt()
    code_hash = await ports.passwords.derive(code, salt)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.setup_links.save_code(link.id, salt, code_hash, now + links.CODE_TTL, links.MAX_CODES_SENT):
            raise links.TooManyCodes
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.SETUP_CODE, recipient, now, token=code, org_id=link.org_id))


async def open_with_code(ports: Ports, caller: Caller, token: str, typed: str) -> str:
    """Bind a mailed link to the caller's browser, and return the cookie's secret.

    Every attempt is counted before its code is compared, so that parallel attempts cannot try more codes. The last wrong code ends the
    link.

    Raises: SetupLinkEnded, SetupLinkCodeWrong; Limited if too many hashes are queued.
    """
    link, now = (await look_up(ports, token)).link, ports.clock.now()
    try:
        code = login_model.normalize_code(typed)
    except errors.Invalid:
        raise links.SetupLinkCodeWrong from None
    async with ports.storage.autocommit() as statements:
        attempt = await statements.setup_links.count_attempt(link.id, links.MAX_ATTEMPTS, now)
    if attempt is None:
        raise links.SetupLinkCodeWrong
    if not hmac.compare_digest(await ports.passwords.derive(code, attempt.salt), attempt.code_hash):
        if attempt.number < links.MAX_ATTEMPTS:
            raise links.SetupLinkCodeWrong
        async with ports.storage.transaction(by=caller) as tx:
            ended = await tx.setup_links.end(link.org_id, link.id, links.SetupLinkEnd.CODES, now)
            if ended is not None:
                tx.record(events.ended(ended))
        raise links.SetupLinkEnded
    return await _bind(ports, caller, link, now)


async def _bind(ports: Ports, caller: Caller, link: links.SetupLink, now: datetime) -> str:
    """Open the link in the browser that gets the returned secret. If several browsers try to open the link, one succeeds."""
    secret = values.new_secret()
    opened = replace(
        link,
        opened_at=now,
        opened_address=caller.address,
        opened_agent=caller.agent,
        expires_at=link.expires_at if link.kind is links.SetupLinkKind.MAILED else now + links.WORK_TTL,
    )
    async with ports.storage.transaction(by=_to_reader(link, caller)) as tx:
        if not await tx.setup_links.open(opened, values.digest(secret)):
            raise links.SetupLinkEnded
        tx.record(events.opened(opened))
    return secret


async def authenticate(ports: Ports, caller: Caller, cookie: str) -> SetupLinkCaller:
    """Return the reader of the link that this browser opened. Raises: SetupSessionMissing, SetupSessionExpired."""
    async with ports.storage.reading() as read:
        link = await read.setup_links.of_browser(values.digest(cookie)) or errors.refuse(links.SetupSessionMissing)
    match link.state(ports.clock.now()):
        case links.SetupLinkState.OPEN:
            return _to_reader(link, caller)
        case links.SetupLinkState.EXPIRED:
            raise links.SetupSessionExpired
    raise links.SetupSessionMissing


def _to_reader(link: links.SetupLink, caller: Caller) -> SetupLinkCaller:
    browser = {"address": caller.address, "agent": caller.agent, "request_id": caller.request_id}
    return SetupLinkCaller(link_id=link.id, org_id=link.org_id, name=link.name, parts=link.parts, **browser)


async def load_design(ports: Ports, org_id: UUID) -> Design | None:
    """Return an organization's design, for the pages about its set-up links."""
    async with ports.storage.reading() as read:
        return await read.branding.design(org_id)
