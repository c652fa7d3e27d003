"""The device flow: sign-in for devices that cannot show a sign-in page (RFC 8628).

A device requests a device code and a user code. The user enters the user code on our page. The page
shows the application and the IP address of the device, and the user approves or denies the request.
Until then the device polls for tokens with the device code (security V-1, V-2, V-3, V-4).
"""

import secrets
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import attempt_limits, devices
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import DeviceType, PresentedDevice
from core.accounts.own_account import lock_own_account
from core.applications.model import services
from core.applications.model.users import NoAccessToService
from core.authentication import admissions, service_access, session_start
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import WaitingApplication
from core.authentication.model import login, openid, sessions
from core.authentication.model.dpop import KeyBinding, ProofUse
from core.authentication.model.policy import GrantBelowPolicy
from core.authentication.tokens import dpop
from core.federation.oauth import authorization as oauth
from core.federation.oauth import consents, external_clients, requests
from core.federation.oauth.model import authorization, device_flow, openid_requests
from core.federation.oauth.model import authorization as oauth_model
from core.federation.oauth.model.client_documents import ClientDocumentUnavailable
from core.federation.oauth.model.clients import OAuthClient
from core.federation.oauth.model.external_clients import ClientDocumentGone, check_document, facts_of, is_external, narrow
from core.kernel import callers, errors, values
from core.kernel.access import BlockedByDirectory, require_mfa, require_reach
from core.kernel.causes import Caller
from core.kernel.display import format_day
from core.kernel.judgement import PolicyPath
from core.kernel.proofs import methods_of, seen_in
from core.programs.api_resources import find_requested
from core.programs.model.api_resources import NoAccessToResource
from ports import Ports, storage

# The device


async def request_codes(ports: Ports, caller: Caller, request: authorization.AuthorizationRequest) -> device_flow.DeviceAuthorization:
    """Issue a device code and a user code to a device that runs the requested application."""
    async with ports.storage.reading() as read:
        service, context = await _find_client(ports, read, request)
        # No redirect URI shows which client this is, so the metadata of an external client must list the grant.
        if context.is_code_flow_only or (context.is_external and not service.uses_device_flow):
            raise device_flow.DeviceFlowRefused
        try:
            check_document(service)
        except ClientDocumentGone as gone:  # there is no grant yet that could be invalid
            raise device_flow.DeviceFlowRefused(gone.message) from None
        grant = await _parse_grant(ports, read, context, request)
    method = request.code_challenge_method
    openid_requests.check_code_challenge(context, request.code_challenge, method, is_required=context.is_external)
    now, device_code = ports.clock.now(), values.new_secret()
    async with ports.storage.transaction(by=caller) as tx:
        for _ in range(device_flow.USER_CODE_ATTEMPTS):
            user_code = "".join(secrets.choice(device_flow.USER_CODE_ALPHABET) for _ in range(device_flow.USER_CODE_LENGTH))
            code = device_flow.DeviceCode(
                device_code_hash=values.digest(device_code),
                user_code_hash=values.digest(user_code),
                service=context,
                code_challenge=request.code_challenge,
                address=caller.address,
                agent=caller.agent,
                created_at=now,
                expires_at=now + device_flow.CODE_TTL,
                openid=replace(grant or openid.NO_GRANT, asked=openid.asked_scopes(request.scope)),
            )
            if await tx.device_codes.add(code):
                return device_flow.DeviceAuthorization(device_code, device_flow.format_user_code(user_code), service.device_activation_uri)
    # The service was deleted. (All generated user codes being in use is too unlikely to handle.)
    raise services.ServiceNotFound


async def _find_client(
    ports: Ports, read: storage.Reading, request: authorization.AuthorizationRequest
) -> tuple[services.Service, callers.ServiceContext]:
    """Return the application that the device runs. An external client must be stored: a device shows no page that could introduce it."""
    if is_external(request.client_id):
        client = await external_clients.find_stored(ports, read, request.client_id or "", request.resource)
        return client.service, client.context
    try:
        return await requests.find_service(read, request) or errors.refuse(device_flow.ApplicationMissing)
    except services.ServiceNotFound:
        raise errors.ClientInvalid if request.org is None else services.ServiceNotFound from None


async def _parse_grant(
    ports: Ports, read: storage.Reading, service: callers.ServiceContext, request: authorization.AuthorizationRequest
) -> openid.OpenIdGrant | None:
    """Return the grant that a device asks for: OpenID Connect, an API resource, or both.

    Of our own resources, a device can ask for the userinfo endpoint only.
    """
    api = None if request.resource is None else await find_requested(ports, read, service.id, request.resource)
    scope = openid_requests.parse_openid_scope(request.scope, service, api)
    openid_scope = scope if openid.Scope.OPENID in scope else ()
    if api is not None and service.is_external:
        api = narrow(api)
    if api is not None:
        access = openid_requests.parse_resource_scope(request.scope, api, is_openid=bool(openid_scope))
        return openid.OpenIdGrant(openid_scope, resource=api.identifier, api=access)
    if openid_requests.parse_own_resource(request.resource, ports.tokens.issuer, is_openid=bool(openid_scope)) is not None:
        raise openid_requests.ResourceUnknown
    return openid.OpenIdGrant(openid_scope) if openid_scope else None


async def redeem(
    ports: Ports,
    caller: Caller,
    device_code: str,
    client: OAuthClient | None,
    code_verifier: str | None,
    requested: authorization.RequestedAccess,
    proof: ProofUse | None = None,
) -> sessions.TokenPair:
    """Start the session of an approved device. This works once per device code (security V-4, Z-1).

    No client secret is needed, but an external client with keys signs. If the device names a client, it must be the one of
    the request.
    The code verifier must match the request's challenge, and be absent if there was none. `caller`
    is the device, which is stored as one of the user's devices. Every poll is counted before it is
    answered. `requested` must not go beyond the approved request, and narrows the tokens that are
    returned. With a `proof`, which was used up, all tokens are bound to its key.

    Raises: DeviceCodeInvalid, DeviceCodeExpired, DeviceCodeDenied, SlowDown, DeviceCodePending,
    OrganizationNotActive, GrantBelowPolicy, ClientDocumentGone, ProofMissing.
    """
    now, device_code_hash = ports.clock.now(), values.digest(device_code)
    challenge = None if code_verifier is None else oauth_model.s256_challenge(code_verifier)
    async with ports.storage.autocommit() as statements:
        poll = await statements.device_codes.poll(
            device_code_hash,
            None if client is None else client.client_id or errors.refuse(device_flow.DeviceCodeInvalid),
            challenge,
            now,
            is_authenticated=client is not None and client.authenticated,
        ) or errors.refuse(device_flow.DeviceCodeInvalid)
    oauth.require_within(ports, poll.openid or openid.NO_GRANT, requested)
    check_document(None if client is None else client.service)
    application = WaitingApplication(poll.service.org_id, poll.service.id)
    try:
        account, approving_session_id = _check_poll(poll, now, has_verifier=challenge is not None)
    except device_flow.DeviceCodeInvalid:
        await record_failure(ports, caller, login.LoginFailure.DEVICE_CODE, "", None, application)
        raise
    oauth.require_granted(ports, poll.openid or openid.NO_GRANT, requested)
    key = dpop.bind(proof, is_required=poll.service.dpop_bound_access_tokens, binds_refresh_token=True)
    person = callers.Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=values.new_id(),
        service=poll.service,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )
    try:
        signed_in = await _start_session(ports, person, poll, approving_session_id, device_code_hash, key)
    except errors.NotFound:  # the service or its organization was deleted
        raise device_flow.DeviceCodeInvalid from None
    except GrantBelowPolicy:  # the refusal has rolled the redemption back, and a right code is used up all the same (security SP-6)
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            await tx.accounts.lock(person.user_id)
            await tx.device_codes.redeem(device_code_hash, poll.service, ports.clock.now())
        raise
    except device_flow.DeviceCodeDenied:
        await record_failure(ports, person, login.LoginFailure.DEVICE_CODE, "", person.user_id, application)
        raise
    return await session_start.issue_first_tokens(ports, signed_in, requested.scope)


def _check_poll(poll: device_flow.DevicePoll, now: datetime, *, has_verifier: bool) -> tuple[Account, UUID]:
    """Return the account of the user who approved the device, and the id of the approving session.

    Raises: DeviceCodeInvalid, DeviceCodeExpired, DeviceCodeDenied, SlowDown, OrganizationNotActive,
    DeviceCodePending.
    """
    # The service may have become a public client after the codes were issued.
    lacks_pkce = poll.service.is_public and not has_verifier
    if poll.is_locked or not poll.is_matching or lacks_pkce or poll.status is device_flow.DeviceRequestStatus.REDEEMED:
        raise device_flow.DeviceCodeInvalid
    if poll.expires_at <= now:
        raise device_flow.DeviceCodeExpired
    if poll.status is device_flow.DeviceRequestStatus.DENIED:
        raise device_flow.DeviceCodeDenied
    if poll.is_early:
        raise device_flow.SlowDown
    if poll.service.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    if poll.account is None or poll.session_id is None:
        raise device_flow.DeviceCodePending
    return poll.account, poll.session_id


async def _start_session(
    ports: Ports,
    person: callers.Person,
    poll: device_flow.DevicePoll,
    approving_session_id: UUID,
    device_code_hash: bytes,
    key: KeyBinding | None,
) -> login.SignedIn:
    """Use up the device code, and start the session of the device.

    Raises: DeviceCodeInvalid; GrantBelowPolicy; DeviceCodeDenied if the approving session has ended.
    """
    now = ports.clock.now()
    fingerprint = devices.fingerprint(ports, person, PresentedDevice(device_type=DeviceType.CLI))
    async with ports.storage.transaction(by=person, in_session=False) as tx:
        locked = await tx.accounts.lock(person.user_id) or errors.refuse(device_flow.DeviceCodeInvalid)
        # A password reset, a deactivation or a sign-out may have ended the approving session. Then
        # the approval is void.
        if await tx.session_contexts.load(approving_session_id, person.user_id, None, now) is None:
            raise device_flow.DeviceCodeDenied
        admission = await admissions.judge_grant(
            ports, tx, PolicyPath.DEVICE, poll.service, admissions.UserSession(person.user_id, approving_session_id)
        )
        if not await tx.device_codes.redeem(device_code_hash, poll.service, now):
            raise device_flow.DeviceCodeInvalid
        match = await devices.match_device(tx, person.user_id, fingerprint, poll.service.org_id, now)
        proofs = seen_in(poll.proofs, poll.service.org_id, now) or errors.refuse(device_flow.DeviceCodeDenied)
        await devices.remember_device(tx, match, methods_of(proofs), now)
        service, entitlement = await service_access.enroll_end_user(tx, poll.service, person.user_id, now)
        admission.require_for_code()  # the policy, or a fact that it judges, can have changed after the approval
        if service.is_code_flow_only:  # its settings have changed after the codes were issued
            raise device_flow.DeviceCodeInvalid
        grant = login.RedeemedGrant(
            person=person,
            account=locked,
            service=poll.service,
            proofs=proofs,
            device_id=match.device.id,
            risk_is_high=poll.risk_is_high or match.device.risk.is_high,
            grant=sessions.Grant.DEVICE_CODE,
            entitlement=entitlement,
            new_device=match.device,
            openid=poll.openid,
            key=key,
            ends_by=admission.decision.ends_at,
        )
        signed_in = await session_start.start_granted_session(ports, tx, grant, now)
        await admission.save_pass(tx, person.session_id, now)
    return signed_in


# The user who approves the device


async def find_request(ports: Ports, caller: callers.Person, user_code: str, network: str) -> device_flow.DeviceRequest:
    """Return the request with this user code, for the caller to approve or deny.

    An unknown code counts as a failed attempt, both for the caller's account and for their network (security V-2).
    `network` is the part of the caller's IP address that rate limits use.

    Raises: UserCodeUnknown, DeviceCodeExpired, OrganizationNotActive, TooManyAttempts.
    """
    address_key, account_key = (values.digest(f"{kind} {value}") for kind, value in (("address", network), ("account", caller.user_id)))
    letters, now = device_flow.normalize_user_code(user_code), ports.clock.now()
    # Count each attempt before the lookup, and uncount only this one if the code is right. Do not
    # reset the counter: an attacker could then guess other users' codes without limit, by entering
    # the code of their own device between the guesses.
    await attempt_limits.count_attempt(ports, SecretKind.USER_CODE, address_key)
    try:
        await attempt_limits.count_attempt(ports, SecretKind.USER_CODE, account_key)
    except attempt_limits_model.TooManyAttempts:
        await attempt_limits.uncount(ports, SecretKind.USER_CODE, address_key)
        raise
    async with ports.storage.reading() as read:
        request = None if letters is None else await read.device_codes.by_user_code(values.digest(letters))
    if request is None:
        await record_failure(ports, caller, login.LoginFailure.DEVICE_CODE, "", caller.user_id)
        raise device_flow.UserCodeUnknown
    # A used or expired code is not a guess, because a device has shown it.
    for key in (address_key, account_key):
        await attempt_limits.uncount(ports, SecretKind.USER_CODE, key)
    if request.is_locked or request.status is not device_flow.DeviceRequestStatus.PENDING:
        application = WaitingApplication(request.org_id, request.service_id)
        await record_failure(ports, caller, login.LoginFailure.DEVICE_CODE, "", caller.user_id, application)
        raise device_flow.UserCodeUnknown
    if request.expires_at <= now:
        raise device_flow.DeviceCodeExpired
    if request.organization_status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    return request


async def decide(
    ports: Ports, caller: callers.Person, user_code: str, decision: device_flow.DeviceDecision, network: str
) -> device_flow.DeviceRequest:
    """Approve or deny the request with this user code. A decision is final.

    Return the request as it was before the decision (security V-3). To approve it, the user needs a
    session in which all required factors were verified. The approval is also the user's consent to the
    scopes of the request.

    Raises: MfaMissing, BlockedByDirectory, NoAccessToService, NoAccessToResource, ClientDocumentUnavailable, SessionEnded; the
    errors of `find_request` and `admissions.require`.
    UserCodeUnknown is also raised if a parallel call decided first.
    """
    if decision is device_flow.DeviceDecision.APPROVE:
        require_mfa(caller)
    request = await find_request(ports, caller, user_code, network)
    application = WaitingApplication(request.org_id, request.service_id)
    try:
        await _store_decision(ports, caller, request, values.digest(device_flow.normalize_user_code(user_code) or ""), decision)
    except errors.NotFound:  # the service or its organization was deleted
        raise device_flow.UserCodeUnknown from None
    except (BlockedByDirectory, NoAccessToService, NoAccessToResource) as refusal:
        await record_failure(ports, caller, login.failure_of(refusal), "", caller.user_id, application)
        raise
    if decision is device_flow.DeviceDecision.DENY:
        await record_failure(ports, caller, login.LoginFailure.DEVICE_CODE, "", caller.user_id, application)
    return request


async def _store_decision(
    ports: Ports, caller: callers.Person, request: device_flow.DeviceRequest, user_code_hash: bytes, decision: device_flow.DeviceDecision
) -> None:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        require_reach(caller, request.org_id)
        if decision is device_flow.DeviceDecision.DENY:
            await tx.device_codes.decide(user_code_hash, decision.status, None, now) or errors.refuse(device_flow.UserCodeUnknown)
            return
        await service_access.require_service_access(tx, request.org_id, request.service_id, caller.user_id, now)
        await admissions.require_in_transaction(
            ports, tx, PolicyPath.DEVICE, service_access.Opened(request.org_id, request.service_id), caller
        )
        if request.api is not None and not await tx.api_resources.may_use(request.org_id, request.api.id, caller.user_id):
            raise NoAccessToResource
        if request.openid is not None:
            service = await tx.services.by_id(request.org_id, request.service_id) or errors.refuse(device_flow.UserCodeUnknown)
            await _require_document(tx, service, caller.user_id, request.openid)
            await consents.remember(tx, service, caller.user_id, request.openid, facts_of(service, None), now)
        await tx.device_codes.decide(user_code_hash, decision.status, caller.session_id, now) or errors.refuse(device_flow.UserCodeUnknown)


async def _require_document(tx: storage.Transaction, service: services.Service, user_id: UUID, grant: openid.OpenIdGrant) -> None:
    """Check that the user may approve an external client although its document is not available, as at a sign-in.

    Raises: ClientDocumentUnavailable if the document is gone, or the user has not agreed to the grant before.
    """
    since = service.document_failing_since
    if since is None:
        return
    if service.is_document_gone or not await consents.are_given(tx, service, user_id, grant, facts_of(service, None)):
        reason, advice = f"could not be fetched since {format_day(since)}", "Try again when it is available."
        raise ClientDocumentUnavailable(service.known_name, reason, advice)
