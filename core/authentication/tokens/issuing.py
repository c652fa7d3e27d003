"""The tokens of a session: access token, refresh token and ID token, and their issuer, which clients have stored."""

from dataclasses import replace
from datetime import datetime, timedelta

from core.authentication.model import claim_rules, sessions
from core.authentication.model.openid import SESSION_EXPIRY, IdToken, ResourceGrant, Scope
from core.kernel import callers, uris
from core.kernel.causes import SYSTEM
from core.kernel.claims import FRONTEND_CLIENT_ID, Claims
from core.kernel.errors import Invalid
from core.kernel.proofs import acr_of, amr_of, proved_at, restriction_of
from core.kernel.values import new_id
from ports import Ports


def limited_lifetime(limit: timedelta, seconds: int | None) -> timedelta:
    """Return the lifetime that an application chose, at most the platform's, which is also the default."""
    return limit if seconds is None else min(limit, timedelta(seconds=seconds))


def issue_tokens(ports: Ports, subject: sessions.TokenSubject, refresh_token: str, now: datetime) -> sessions.TokenPair:
    """Return a new access token, which never outlives the session's absolute end, with the refresh token.

    A token of a service contains the user's entitlement to it. This function reads nothing from the database: the old
    refresh token is already used up, so an error would leave the client without a valid token.
    """
    service, entitlement = subject.service, subject.entitlement
    openid, proofs = (
        subject.openid and subject.openid.seen_by(restriction_of(subject.proofs)),
        callers.proofs_at(subject.service, subject.proofs, now),
    )
    expires_at = _expires_at(ports, subject, now, openid.grant.api if openid else None)
    shows_email = service is None or openid is None or openid.grant.shows_email_to(service)
    claims = Claims(
        user_id=subject.user_id,
        session_id=subject.session_id,
        email=subject.email if shows_email else None,
        email_verified=shows_email and subject.email_verified,
        token_id=new_id(),
        issued_at=now,
        expires_at=expires_at,
        org=service.org_slug if service else subject.org_slug,
        org_id=service.org_id if service else subject.org_id,
        service=service.slug if service else "",
        client_id=service.client_id if service else None,
        client_uri=service.client_uri if service else None,
        plan=entitlement.plan,
        subscription_status=entitlement.status,
        features=entitlement.features,
        impersonator_id=subject.impersonator_id,
        audience=_audience(ports, openid, service),
        scope=openid.grant.token_scope if openid else (),
        auth_time=proved_at(proofs) if proofs else None,
        acr=acr_of(proofs, openid.grant.acr if openid else ()) if proofs else None,
        amr=tuple(amr_of(proofs)) if proofs else (),
        key_thumbprint=subject.key_thumbprint,
        further=claim_rules.access_token_claims(openid.facts, openid.grant) if openid else {},
    )
    ports.metrics.token_issued()
    access_token, expires_in = ports.tokens.sign(claims), int(expires_at.timestamp()) - int(now.timestamp())
    is_bound = subject.key_thumbprint is not None
    if openid is None or not proofs:
        return sessions.TokenPair(access_token, refresh_token, expires_in, is_bound=is_bound)
    if Scope.OPENID not in openid.grant.scope:  # the refresh left it out
        return sessions.TokenPair(access_token, refresh_token, expires_in, None, openid.grant.scope_text or None, is_bound)
    id_token = _with_source_token(ports, new_id_token(ports, subject, openid, access_token, now), claims)
    signed = ports.tokens.sign_id_token(id_token)
    return sessions.TokenPair(access_token, refresh_token, expires_in, signed, openid.grant.scope_text or None, is_bound)


def _with_source_token(ports: Ports, id_token: IdToken, access: Claims) -> IdToken:
    """Return the ID token with a token that reads the claims that are too large for it, if there are any.

    The userinfo endpoint accepts it for these claims only, and nothing else accepts it. The reader of an ID token has no key. So a
    client that binds its tokens to a key gets none.
    """
    if access.key_thumbprint is not None:
        return id_token

    def sign() -> str:
        audience = ports.tokens.claims_audience
        email = None if access.service else access.email  # only tokens for the platform's frontend have the address
        source = replace(access, token_id=new_id(), expires_at=id_token.expires_at, audience=audience, email=email)
        return ports.tokens.sign(replace(source, features=None, further={}))

    return replace(id_token, claims=claim_rules.with_source_token(id_token.claims, sign))


def _expires_at(ports: Ports, subject: sessions.TokenSubject, now: datetime, api: ResourceGrant | None = None) -> datetime:
    """Return the end of a token. For an API resource, its own lifetime counts instead of the platform's."""
    seconds = subject.service.access_token_seconds if subject.service else None
    # Without a lifetime, the API resource may not be used, and the grant was refused before.
    limit = ports.policy.access_token_ttl if api is None else timedelta(seconds=api.token_seconds or 0)
    return min(now + limited_lifetime(limit, seconds), subject.ends_at)


def new_id_token(
    ports: Ports, subject: sessions.TokenSubject, openid: sessions.OpenIdSubject, access_token: str | None, now: datetime
) -> IdToken:
    """Return the ID token's contents for a new token pair. Without an access token, it is a preview."""
    facts, grant, proofs = openid.facts, openid.grant, callers.proofs_at(subject.service, subject.proofs, now)
    return IdToken(
        client_id=FRONTEND_CLIENT_ID if subject.service is None else subject.service.client_name,
        user_id=subject.user_id,
        session_id=subject.session_id,
        issued_at=now,
        expires_at=_expires_at(ports, subject, now),
        proofs=proofs,
        acr=acr_of(proofs, grant.acr),
        nonce=openid.nonce,
        access_token=access_token,
        session_expiry=subject.ends_at if SESSION_EXPIRY in grant.claims.id_token else None,
        claims={} if facts is None else claim_rules.id_token_claims(facts, grant, ports.tokens.userinfo_audience),
    )


def _audience(ports: Ports, openid: sessions.OpenIdSubject | None, service: callers.ServiceContext | None) -> str | None:
    """Return an OpenID Connect token's audience, or None for the default. The platform's frontend gets tokens for our API."""
    if openid is None:
        return None
    return openid.grant.resource or (ports.tokens.userinfo_audience if service else ports.tokens.api_audience)


class IssuerMisspelled(Invalid):
    """The base URL is not in the spelling that browsers and clients use. Set SSO_BASE_URL to the usual one."""

    def __init__(self, url: str) -> None:
        usual = uris.canonicalize(url)
        advice = f"Set it to {usual}"
        if not usual.isascii():
            advice = "Write its host in the xn-- form"
        elif not _is_usual(usual):
            advice = "It must have no spaces, no dot at the end of its host, and no zeros before its port"
        super().__init__(f"SSO_BASE_URL is not in the spelling that browsers and clients use. {advice}.")


def is_issuer_misspelled(url: str) -> bool:
    """Return whether this URL has another spelling than browsers and clients use."""
    return url != uris.canonicalize(url) or not _is_usual(url)


def _is_usual(url: str) -> bool:
    return url.isascii() and uris.normalize(url) is not None


def issuer_warning(url: str) -> str | None:
    """Return the warning for an installation that uses an unusual spelling already, or None for the usual spelling."""
    return f"{IssuerMisspelled(url).message} If clients have stored the present one, keep it." if is_issuer_misspelled(url) else None


async def adopt_issuer(ports: Ports) -> str | None:
    """Store the issuer at the start, and return the warning about its spelling (`issuer_warning`).

    An unusual spelling is accepted only if the installation uses it already.
    """
    url = ports.tokens.issuer
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        stored = await tx.signing_keys.issuer()
        if is_issuer_misspelled(url) and stored != url:
            raise IssuerMisspelled(url)
        if stored != url:
            await tx.signing_keys.set_issuer(url)
    return issuer_warning(url)
