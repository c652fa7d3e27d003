"""OpenID Connect in the access tests: client settings, a session with its tokens, and an ended session."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.authentication import sessions
from core.authentication.model.openid import OpenIdGrant, RequestedClaims, Scope
from core.authentication.model.sessions import Grant, OpenIdSubject, SessionStart, TokenSubject
from core.authentication.tokens import issuing
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.proofs import Proof
from core.kernel.values import digest, new_id, new_secret
from core.maintenance.model.housekeeping import ENDED_SESSIONS_KEPT
from ports import Ports
from tests.proof.access.belongings import begin_in_browser
from tests.support.builders import one_factor, run_sql
from tests.support.services import service_context

GRANT: Final = OpenIdGrant((Scope.OPENID, Scope.EMAIL, Scope.OFFLINE_ACCESS), RequestedClaims(("name",), ("picture",)))


def with_openid(service: Service, slug: str) -> Service:
    """Return the service with OpenID Connect settings. Its keys are in the settings, or at an address."""
    site = f"https://{service.slug}.{slug}.example"
    key = {"kty": "OKP", "crv": "Ed25519", "kid": f"{slug} key", "x": f"public part at {slug}"}
    has_keys = service.slug.endswith("shop")
    return replace(
        service,
        jwks=(key,) if has_keys else None,
        jwks_uri=None if has_keys else f"{site}/keys",
        post_logout_redirect_uris=(f"{site}/bye",),
        backchannel_logout_uri=f"{site}/backchannel",
        former_secret_hash=digest(f"former secret of {service.slug}"),
        former_secret_expires_at=service.created_at + ENDED_SESSIONS_KEPT,
    )


async def add_openid_sessions(ports: Ports, pool: Pool, slug: str, service: UUID, user: Account) -> Mapping[str, str]:
    """Add a session with tokens, and an ended session that the application has not been told about.

    Return the first session's tokens.
    """
    now, context = ports.clock.now(), await service_context(pool, service)
    cookie = digest(await begin_in_browser(ports, user))
    [[browser]] = await run_sql(pool, "select id from sessions where browser_hash = %s", cookie)
    caller = Anonymous(address=f"{slug}:9", agent=f"{slug} tablet")
    start = SessionStart(
        user_id=user.id,
        caller=caller,
        service=context,
        openid=GRANT,
        browser_session_id=browser,
        grant=Grant.AUTHORIZATION_CODE,
        proofs=one_factor(now),
    )
    live, ended = sessions.new_session(ports, start, now), sessions.new_session(ports, replace(start, id=new_id()), now)
    refresh_token = new_secret()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin(live, digest(refresh_token))
        await tx.sessions.begin(ended, digest(new_secret()))
        await tx.sessions.end(ended.id, now)
    async with ports.storage.reading() as read:
        loaded = await read.session_contexts.load_userinfo(context.client_id, live.id, user.id, now)
    assert loaded is not None
    subject = TokenSubject(
        session_id=live.id,
        user_id=user.id,
        email=user.email,
        email_verified=True,
        ends_at=live.ends_at,
        service=context,
        proofs=(Proof(None, now),),
        openid=OpenIdSubject(GRANT, loaded[2], f"nonce of {slug}"),
    )
    pair = issuing.issue_tokens(ports, subject, refresh_token, now)
    assert pair.id_token is not None
    return {"openid_access_token": pair.access_token, "openid_refresh_token": refresh_token, "id_token": pair.id_token}
