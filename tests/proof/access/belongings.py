"""The users' personal things in the access tests: devices, second factors, linked accounts, sessions and browsers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Device, DeviceType, Location, LoginRisk
from core.accounts.model.mfa import MfaEvent
from core.authentication.browser import form_token
from core.authentication.flow.model import ChallengeOrigin, EmailChallenge, FlowTarget, new_flow
from core.authentication.model.login import new_code
from core.authentication.model.recovery import RECOVERY_TTL, AccountRecovery
from core.authentication.model.sessions import SessionStart
from core.authentication.sessions import new_session
from core.federation.oauth.model.authorization import CODE_TTL
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.claims import PreAuthClaims
from core.kernel.page_paths import ACCOUNT_PATH
from core.kernel.values import digest, new_id, new_secret
from ports import Ports
from ports.storage import Transaction
from tests.support.builders import one_factor, run_sql, sign_in
from tests.support.identities import add_identity
from tests.support.mfa import Authenticator, add_mfa, waiting_flow
from tests.support.personal_tokens import add_personal_token

COUNTRY: Final = "DE"  # all addresses are located there


def password_of(email: str) -> str:
    """Return the password of this user.

    Passwords differ between users, so that no user is recognized by another user's password.
    """
    return f"correct horse of {email}"


class Belongings:
    """The personal things of all users, created when they are first needed.

    Every text contains the slug of the user's organization. The names are those in world.py: `device_id` and
    `session_id` in paths belong to the caller.
    """

    def __init__(self, ports: Ports, pool: Pool) -> None:
        self._ports = ports
        self._pool = pool
        self._things: dict[UUID, Mapping[str, str]] = {}

    async def of(self, account: Account, slug: str, *, guarded: bool = False) -> Mapping[str, str]:
        """Return this user's things.

        With `guarded` the second factor is active, otherwise its setup is pending.
        """
        if account.id not in self._things:
            self._things[account.id] = await self._make(account, slug, guarded=guarded)
        return self._things[account.id]

    async def _make(self, account: Account, slug: str, *, guarded: bool) -> Mapping[str, str]:
        ports, pool, name = self._ports, self._pool, f"{slug} {account.email.partition('@')[0]}"
        now, trust = ports.clock.now(), new_secret()
        device = Device(
            id=new_id(),
            user_id=account.id,
            client_hash=digest(f"the client of {name}"),
            name=f"Telephone of {name}",
            device_type=DeviceType.MOBILE,
            browser=f"{slug} browser",
            browser_version=f"{slug} 1.0",
            os=f"{slug} system",
            os_version=f"{slug} 2.0",
            last_used_at=now,
            last_ip=f"{slug}:2",
            location=Location(f"{slug.title()} City", COUNTRY),
            risk=LoginRisk(30, (f"{slug} factor",)),
            mfa_at=now,
            trust_hash=digest(trust),
            trust_expires_at=now + timedelta(days=90),
            created_at=now,
            updated_at=now,
        )
        if guarded:
            authenticator = await add_mfa(ports, account, backup_codes=backup_codes(slug))
        else:
            authenticator = Authenticator(ports.codes.new_secret(), ports.clock)
        recovery = AccountRecovery(
            id=new_id(),
            user_id=account.id,
            org_id=None,
            issuer_id=new_id(),
            code_salt=digest(f"{name} salt"),
            created_at=now,
            expires_at=now + RECOVERY_TTL,
        )
        session = await sign_in(ports, account, agent=f"tablet of {name}")
        by = Anonymous(address=f"{slug}:3", agent=f"television of {name}")
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.devices.add(device)
            await tx.recoveries.put(recovery, digest(f"{name} code"))
            if not guarded:
                await tx.mfa.save_pending_secret(account.id, authenticator.secret, now)
            await tx.mfa.log(account.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], by, now, reason=f"why {name} was asked")
        await run_sql(pool, "update sessions set device_id = %s where id = %s", device.id, session.session_id)
        await add_identity(
            pool, account.id, subject=f"{name} there", email=f"{slug}@codehost.example", token=f"token of {name}", scopes=[f"{slug}:all"]
        )
        # It has not verified its user, so no change to the ways in asks for it (security PK-12).
        passkey_id = new_id()
        passkey = """
            insert into passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, backup_eligible, created_at,
                                  rp_id, algorithm, user_verified)
            values (%s, %s, %s, %s, %s, 0, %s, true, %s, 'gatehouse.test', -7, false)"""
        await run_sql(pool, passkey, passkey_id, account.id, f"Key of {name}", digest(f"{name} id"), digest(f"{name} key"), new_id(), now)
        await run_sql(pool, "update users set passkey_count = 1, passkey_handle = %s where id = %s", digest(name) * 2, account.id)
        # A login at the platform itself, which only organizations with the user as a confirmed member see.
        login = """
            insert into login_events (id, user_id, provider, success, address, agent, risk_score, risk_factors, city, country, created_at)
            values (%s, %s, 'password', true, %s, %s, 20, %s, %s, %s, %s)"""
        where = (f"{slug}:4", f"laptop of {name}", [f"{slug} hour"], f"{slug.title()} Village", COUNTRY)
        await run_sql(pool, login, new_id(), account.id, *where, now)
        # A code for the platform's own frontend, which belongs to no organization.
        browser = digest(await begin_in_browser(ports, account))
        await add_code(ports, pool, digest(f"code of {name}"), browser, f"https://{slug}.example/auth/callback", f"challenge of {name}")
        token = await add_personal_token(ports, account, name=f"Token of {name}")
        return {
            "own_id": str(account.id),
            "own_email": account.email,
            "password": password_of(account.email),
            "device_id": str(device.id),
            "device_token": trust,
            "session_id": str(session.session_id),
            "personal_token_id": str(token.id),
            "passkey_id": str(passkey_id),
            "recovery_id": str(recovery.id),
            **{"new_credential_id": "AAAA", "client_data": "AAAA", "attestation": "AAAA"},  # belongs to no session
            "mfa_secret": authenticator.secret,
            "code": authenticator.code(),
            "provider_token": f"token of {name}",
            "own_form_token": form_token(""),  # as form_token, also during an impersonation
            "form_token": form_token(""),  # valid for no user; browsers have a valid token
        }


def backup_codes(slug: str) -> list[str]:
    return [f"{slug[:4].upper()}-{number:04}" for number in range(10)]


async def begin_in_browser(ports: Ports, account: Account) -> str:
    """Return the cookie from a browser in which this user is signed in."""
    cookie = new_secret()
    now = ports.clock.now()
    start = SessionStart(user_id=account.id, caller=Anonymous(address="203.0.113.9", agent="tests"), proofs=one_factor(now))
    session = new_session(ports, start, now)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin_in_browser(session, digest(cookie))
    return cookie


async def add_code(
    ports: Ports,
    pool: Pool,
    code_hash: bytes,
    browser_hash: bytes,
    redirect_uri: str,
    challenge: str,
    service: UUID | None = None,
    session: UUID | None = None,
) -> None:
    """Add an authorization code for a service or the platform's frontend, for the browser with this cookie.

    With a session, the code has been exchanged already.
    """
    insert = """
        insert into authorization_codes (code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge,
                                         created_at, expires_at, session_id)
        select %s, (select org_id from services where id = %s), %s, b.user_id, b.id, %s, %s, %s, %s, %s
        from sessions b where b.browser_hash = %s"""
    now = ports.clock.now()
    times = (now, now + CODE_TTL)
    await run_sql(pool, insert, code_hash, service, service, redirect_uri, challenge, *times, session, browser_hash)


async def add_email_sign_ins(tx: Transaction, account: Account, slug: str, now: datetime) -> Mapping[str, str]:
    """Add requests to sign in by email: from an API client, and from a browser. The emails were sent."""
    things = {
        "email_code": new_code(),
        "email_request_token": new_secret(),
        "email_link": str(new_id()),
    }
    client = new_flow(now, FlowTarget.API, "", secret_hash=digest(things["email_request_token"]))
    browser = new_flow(now, FlowTarget.PAGE, ACCOUNT_PATH, digest(device_of(slug)))
    for flow, link in ((client, str(new_id())), (browser, things["email_link"])):
        challenge = EmailChallenge(
            id=new_id(),
            flow=flow,
            email=account.email,
            origin=ChallengeOrigin(f"{slug}:8", f"{slug} tablet", Location(f"{slug.title()} Quay", COUNTRY)),
            begun_at=now,
            expires_at=now + timedelta(minutes=15),
        )
        assert await tx.flows.start(challenge)
        await tx.flows.issue_email(challenge, account.id, digest(link), things["email_code"])
    return {**things, "email_flow": str(browser.id)}


def device_of(slug: str) -> str:
    """Return the device cookie of a browser without a session, in which this organization's people sign in."""
    return f"{slug}-{'d' * 43}"[:43]


async def add_flows(ports: Ports, account: Account, slug: str, org: UUID, service_id: UUID) -> Mapping[str, str]:
    """Add sign-ins in progress: a sign-in to this application, and a sign-in that waits for this account's second factor."""
    now, browser = ports.clock.now(), digest(device_of(slug))
    async with ports.storage.reading() as read:
        service = await read.services.by_id(org, service_id)
    assert service is not None
    request = urlencode({"org": slug, "service": service.slug})
    flow = new_flow(now, FlowTarget.OAUTH, request, browser, org_id=org, service_id=service_id)
    waiting = replace(waiting_flow(account.id, now), target=FlowTarget.PAGE, request=ACCOUNT_PATH, browser_hash=browser)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for each in (flow, waiting):
            await tx.flows.add(each)
    return {"flow": str(flow.id), "code_flow": str(waiting.id)}


async def wait_for_code(ports: Ports, account: Account) -> str:
    """Return the pre-auth token for a sign-in that waits for the second factor."""
    flow = waiting_flow(account.id, ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(flow)
    expires_at = ports.clock.now() + ports.policy.pre_auth_ttl
    return ports.tokens.sign_pre_auth(PreAuthClaims(id=flow.id, user_id=account.id, issued_at=flow.begun_at, expires_at=expires_at))
