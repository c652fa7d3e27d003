"""OAuth authorization codes with PKCE, and pushed authorization requests (RFC 9126).

Sources: RFC 6749, RFC 7636, RFC 8252, RFC 9207.

An application sends the browser here with an authorization request. When the user has signed in,
the browser is redirected back with a code. The application exchanges the code for tokens, so tokens
never appear in a URL (security O-1, O-2, O-3, O-4).

A client sends its authorization request here first, and authenticates. The browser gets only a
reference to it. So users cannot change the request, and its length does not matter.

A request must be presented within 60 seconds. It is used up when a code or an error goes to the client, or
when a sign-in begins with it, which then keeps it (`requests.begin`).
"""

import re
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import own_account
from core.accounts.model.accounts import Account
from core.applications.model.plans import Entitlement
from core.applications.model.services import ServiceNotFound
from core.authentication import admissions, session_start, sessions
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import Flow, FlowEnded, WaitingApplication
from core.authentication.model import login, openid
from core.authentication.model.dpop import KeyBinding, ProofInvalid, ProofUse
from core.authentication.model.policy import GrantBelowPolicy
from core.authentication.model.sessions import (
    NO_ENTITLEMENT,
    UNNAMED_PRESENTER,
    Grant,
    Presenter,
    RefreshTokenInvalid,
    RefreshTokenNotYours,
    TokenNotRevocable,
    TokenPair,
)
from core.authentication.service_access import require_enrolled
from core.authentication.tokens import dpop
from core.federation.oauth import consents, external_clients, requests
from core.federation.oauth.model import clients, openid_requests
from core.federation.oauth.model.authorization import (
    CODE_TTL,
    PREFIX,
    PRESENTED_WITHIN,
    AuthorizationCode,
    AuthorizationCodeInvalid,
    AuthorizationRequest,
    PresentedCode,
    PushedRedirectUriMissing,
    PushedRequest,
    PushRefused,
    RedeemedAuthorizationCode,
    RequestedAccess,
    RequestUriInvalid,
    RequestUriPushed,
    StoredRequest,
    s256_challenge,
)
from core.federation.oauth.model.external_clients import check_document
from core.kernel import callers, errors, uris, values
from core.kernel.access import require_mfa
from core.kernel.causes import Caller
from core.kernel.judgement import PolicyPath
from core.kernel.proofs import session_strength
from core.programs.model import credentials
from core.programs.model.api_resources import NoAccessToResource
from ports import Ports

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 section 4.1


# The user in the browser


async def issue_code(
    ports: Ports,
    visitor: callers.Visitor,
    waiting: requests.WaitingRequest,
    grant: openid.OpenIdGrant | None,
    flow: Flow | None,
    *,
    agreed: bool,
) -> str:
    """Issue a code and return it. It works once, within 60 seconds (security O-4). It ends the flow, if there is one.

    `agreed`: the user has just agreed to the scopes of the grant, which is remembered.

    Raises: MfaMissing, ServiceNotFound; FlowEnded, RequestUriInvalid if the flow or a pushed request was used before;
    AccessDenied if the user has just withdrawn the consent, or the API resource no longer admits the external client.
    """
    require_mfa(visitor)
    now, code, authorization = ports.clock.now(), values.new_secret(), waiting.authorization
    record = AuthorizationCode(
        service=authorization.context,
        user_id=visitor.user_id,
        browser_session_id=visitor.session_id,
        redirect_uri=None if authorization.request.redirect_uri is None else authorization.redirect_uri,
        code_challenge=authorization.request.code_challenge,
        created_at=now,
        expires_at=now + CODE_TTL,
        openid=replace(grant or openid.NO_GRANT, asked=waiting.openid.asked),
        nonce=None if grant is None else authorization.request.nonce,
        key_thumbprint=authorization.request.dpop_jkt,
    )
    async with ports.storage.transaction(by=visitor) as tx:
        await own_account.lock_own_account(tx, visitor, now)
        if flow is not None:
            if not await tx.flows.close(flow, now):
                raise FlowEnded
        elif isinstance(authorization.request, PushedRequest) and not await tx.pushed_requests.use(authorization.request.hash, now):
            raise RequestUriInvalid
        if grant is not None:
            await external_clients.store(ports, tx, authorization, grant)
        if not await tx.authorization_codes.add(record, values.digest(code)):
            raise ServiceNotFound
        if grant is not None and authorization.service is not None:
            if agreed:
                await consents.remember(tx, authorization.service, visitor.user_id, grant, waiting.client, now)
            elif not await consents.are_given(tx, authorization.service, visitor.user_id, grant, waiting.client):
                raise openid_requests.AccessDenied  # read again after the lock: a withdrawal deletes only the codes that it finds
    return code


# The application


async def exchange_code(
    ports: Ports,
    caller: Caller,
    client: clients.OAuthClient,
    code: str,
    redirect_uri: str | None,
    verifier: str | None,
    requested: RequestedAccess,
    proof: ProofUse | None = None,
) -> TokenPair:
    """Exchange a code for the first tokens of a new session.

    Sources: security O-3 and O-4.

    The session gets the IP address and user agent of the browser that received the code, because
    those of the application's server say nothing about the user. If a code is presented a second
    time, the session that it started ends.

    `requested` must not go beyond the authorization request, and narrows the tokens that are returned.
    A `proof` was already used up. The tokens are bound to its key (RFC 9449 section 5). If the
    authorization request named a key, it must be this one.
    """
    if not client.authenticated:
        raise errors.ClientInvalid
    check_document(client.service)
    key = dpop.bind(proof, is_required=client.is_bound_only, binds_refresh_token=client.relies_on_pkce)
    if client.context is not None and client.context.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    try:
        return await _redeem(ports, caller, client, _read_code(ports, client, code, redirect_uri, verifier), requested, key)
    except AuthorizationCodeInvalid:
        application = None if client.context is None else WaitingApplication(client.context.org_id, client.context.id)
        await record_failure(ports, caller, login.LoginFailure.AUTHORIZATION_CODE, "", None, application)
        raise


def _read_code(ports: Ports, client: clients.OAuthClient, code: str, redirect_uri: str | None, verifier: str | None) -> PresentedCode:
    challenge = None
    if verifier is not None:
        challenge = s256_challenge(verifier) if _VERIFIER.fullmatch(verifier) else errors.refuse(AuthorizationCodeInvalid)
    elif client.relies_on_pkce:
        raise AuthorizationCodeInvalid
    registered_uri = uris.find_registered(_registered_uris(ports, client), redirect_uri)
    return PresentedCode(
        values.digest(code), client.context, registered_uri or redirect_uri, challenge, is_registered=registered_uri is not None
    )


async def _redeem(
    ports: Ports, caller: Caller, client: clients.OAuthClient, code: PresentedCode, requested: RequestedAccess, key: KeyBinding | None
) -> TokenPair:
    service, session_id, now = client.context, values.new_id(), ports.clock.now()
    try:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            codes = tx.authorization_codes
            locked = codes.lock_account(code.hash, service)
            redemption = codes.redeem(code, session_id, now, key_thumbprint=None if key is None else key.thumbprint)
            enrollment = None if service is None else codes.enroll_redeemer(code.hash, service.id, session_id, now)
            account, redeemed = await locked or errors.refuse(AuthorizationCodeInvalid), await redemption
            if redeemed is not None:
                _require_as_issued(ports, client, redeemed, requested, now)
                admission = await admissions.judge_grant(
                    ports, tx, PolicyPath.CODE, service, admissions.UserSession(account.id, redeemed.browser.id)
                )
                entitlement = NO_ENTITLEMENT
                if service is not None and enrollment is not None:
                    is_enrolled, found = enrollment
                    _, entitlement = await require_enrolled(tx, service, account.id, await is_enrolled, await found, now)
                admission.require_for_code()  # the policy, or a fact that it judges, can have changed after the code was issued
                grant = _grant_of(caller, account, service, session_id, redeemed, entitlement)
                grant = replace(grant, key=key, ends_by=admission.decision.ends_at)
                tx.acts_as(grant.person)
                signed_in = await session_start.start_granted_session(ports, tx, grant, now)
                await admission.save_pass(tx, session_id, now)
            elif (started := await codes.session_started_by(code.hash, service)) is not None:
                await tx.sessions.end(started, now)
    except GrantBelowPolicy:  # the refusal has rolled the redemption back, and a code is presented once (security O-4)
        async with ports.storage.autocommit() as statements:
            await statements.authorization_codes.use_up(code.hash, service, session_id)
        raise
    except errors.NotFound:  # the service was deleted
        raise AuthorizationCodeInvalid from None
    except NoAccessToResource:  # other clients know only the errors in RFC 6749 section 5.2
        raise AuthorizationCodeInvalid if service is not None and service.is_external else NoAccessToResource from None
    if redeemed is None:
        raise AuthorizationCodeInvalid
    return await session_start.issue_first_tokens(ports, signed_in, requested.scope)


def _require_as_issued(
    ports: Ports, client: clients.OAuthClient, redeemed: RedeemedAuthorizationCode, requested: RequestedAccess, now: datetime
) -> None:
    """Check that the session is strong enough for the present settings, and that the request does not go beyond the grant."""
    strength = session_strength(callers.proofs_at(client.context, redeemed.browser.proofs, now))
    if client.service is not None and strength < client.service.required_strength:
        raise AuthorizationCodeInvalid
    require_granted(ports, redeemed.openid or openid.NO_GRANT, requested)


def require_granted(ports: Ports, grant: openid.OpenIdGrant, requested: RequestedAccess) -> None:
    """Check that a token request does not go beyond the grant, and that the granted API resource is usable now."""
    require_within(ports, grant, requested)
    if grant.api is not None and grant.api.token_seconds is None:
        raise NoAccessToResource


def require_within(ports: Ports, grant: openid.OpenIdGrant, requested: RequestedAccess) -> None:
    """Check that a token request names no other resource than the granted one, and not only scopes that were not granted.

    Two spellings of an identifier are equal (RFC 3986 section 6.2).
    """
    if requested.resource is not None:
        granted = grant.resource or (ports.tokens.userinfo_audience if grant.scope else None)
        canonical = uris.normalize(requested.resource)
        if granted is None or canonical is None or canonical != uris.normalize(granted):
            raise openid_requests.ResourceNotGranted
    if grant.names and not grant.narrow(requested.scope).names:
        raise openid_requests.ScopeNotGranted


def _grant_of(
    caller: Caller,
    account: Account,
    service: callers.ServiceContext | None,
    session_id: UUID,
    redeemed: RedeemedAuthorizationCode,
    entitlement: Entitlement,
) -> login.RedeemedGrant:
    person = callers.Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=session_id,
        service=service,
        address=redeemed.address,
        agent=redeemed.agent,
        request_id=caller.request_id,
    )
    return login.RedeemedGrant(
        person=person,
        account=account,
        service=service,
        proofs=redeemed.browser.proofs,
        device_id=redeemed.browser.device_id,
        risk_is_high=redeemed.browser.risk_is_high,
        grant=Grant.AUTHORIZATION_CODE,
        entitlement=entitlement,
        browser_session_id=redeemed.browser.id,
        openid=redeemed.openid,
        nonce=redeemed.nonce,
    )


def _registered_uris(ports: Ports, client: clients.OAuthClient) -> tuple[str | None, ...]:
    return (requests.frontend_callback(ports),) if client.service is None else client.service.redirect_uris


async def refresh_tokens(
    ports: Ports,
    caller: Caller,
    client: clients.OAuthClient | None,
    refresh_token: str,
    requested: RequestedAccess,
    proof: ProofUse | None = None,
) -> TokenPair:
    """Rotate a refresh token, as `sessions.refresh` does.

    `client` is None if the request names no client. `requested` must not go beyond the grant, and narrows
    the tokens that are returned. It can also name scopes that the authorization request asked for and did
    not get (RFC 6749 section 6). A `proof` was already used up. The new access token is bound to its key.
    The new refresh token is bound too, unless the client authenticated. A refresh token that is bound
    needs a proof of the same key.

    Raises: ClientInvalid if the client secret is missing; GrantInvalid, ClientDocumentGone, OrganizationNotActive,
    MembershipEnded, ScopeNotAsked.
    """
    check_document(None if client is None else client.service)
    key = dpop.bind(proof, is_required=False, binds_refresh_token=client is None or client.relies_on_pkce)
    presenter = replace(_presenter(client), key=key)
    if requested != RequestedAccess():  # checked before the token is used up
        async with ports.storage.reading() as read:
            grant = await read.refresh_tokens.grant(values.digest(refresh_token), ports.clock.now())
        if grant is not None:  # an unknown token is an invalid grant, with every resource and scope (RFC 6749 section 5.2)
            require_within(ports, grant, requested)
            if grant.asked is not None and not set(requested.scope or ()) <= {*grant.asked, *grant.names}:
                raise openid_requests.ScopeNotAsked
    try:
        return await sessions.refresh(ports, caller, refresh_token, presenter, requested.scope)
    except RefreshTokenInvalid as refusal:
        if isinstance(refusal, RefreshTokenNotYours) and not presenter.is_authenticated:
            raise errors.ClientInvalid from None
        invalid = errors.GrantInvalid(refusal.message)
        invalid.fields = refusal.fields
        raise invalid from None


async def revoke_token(ports: Ports, caller: Caller, client: clients.OAuthClient | credentials.ProgramClient | None, token: str) -> None:
    """Revoke a token and end its session (RFC 7009 section 2.1).

    Tokens of other clients are not revoked. The tokens of service accounts cannot be revoked, and API resources have none.

    Raises: TokenNotRevocable; ClientInvalid if nothing was revoked because a client secret was missing: the secret of
    the client in the request or, if the request names none, of the client that got the token.
    """
    if isinstance(client, credentials.ProgramClient):
        raise TokenNotRevocable if client.kind is credentials.ProgramKind.SERVICE_ACCOUNT else errors.ClientInvalid
    revoked = await sessions.revoke(ports, caller, token, _presenter(client))
    lacks_secret = revoked is False if client is None else not revoked and not client.authenticated
    if lacks_secret:
        raise errors.ClientInvalid


def _presenter(client: clients.OAuthClient | None) -> Presenter:
    return UNNAMED_PRESENTER if client is None else client.presenter


async def push_request(
    ports: Ports,
    client: clients.OAuthClient | credentials.ProgramClient | None,
    request: AuthorizationRequest,
    proof: ProofUse | None,
    base_url: str,
) -> str:
    """Store the authorization request of a client, and return its request_uri.

    The request is checked as at the authorization endpoint. With a DPoP proof, only the key of the
    proof can redeem the code (RFC 9449 section 10.1).

    Raises: ClientInvalid, PushRefused, RequestUriPushed, PushedRedirectUriMissing; ProofInvalid if
    `dpop_jkt` names another key than the proof.
    """
    if isinstance(client, credentials.ProgramClient):
        raise PushRefused
    if client is None or not client.authenticated:
        raise errors.ClientInvalid
    if request.request_uri is not None:
        raise RequestUriPushed
    if request.client_id not in (None, clients.client_id_text(client)):
        raise errors.ClientInvalid
    if request.redirect_uri is None:
        raise PushedRedirectUriMissing
    if proof is not None:
        if request.dpop_jkt not in (None, proof.thumbprint):
            raise ProofInvalid("its key is not that of dpop_jkt")
        request = replace(request, dpop_jkt=proof.thumbprint)
    secret, now = values.new_secret(), ports.clock.now()
    own = replace(request, client_id=clients.client_id_text(client))
    pushed = PushedRequest(**{name: getattr(own, name) for name in own.__slots__} | {"request_uri": PREFIX + secret})
    if (refusal := (await requests.check(ports, pushed, base_url, pushed_by=client.service)).refusal) is not None:
        raise refusal
    stored = StoredRequest(values.digest(secret), client.context, pushed.parameters, now, now + PRESENTED_WITHIN)
    async with ports.storage.autocommit() as statements:
        if not await statements.pushed_requests.add(stored):
            raise errors.ClientInvalid
    return PREFIX + secret
