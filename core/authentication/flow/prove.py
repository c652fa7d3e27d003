"""One step of every sign-in: a method verifies an answer, and then a session starts, or the second factor remains.

All methods are treated alike: the second factor is required (security A-10), the device is recognized, and the
same records are written.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import devices, factor_changes, session_proofs
from core.accounts import events as account_events
from core.accounts.model.accounts import Account, LinkNeedsProof
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind
from core.accounts.notices import security_notices
from core.applications.model.users import NoAccessToService
from core.authentication.flow.admission import AccountFacts, hide_in_flow, skips_second
from core.authentication.flow.methods import Proved, SignInMethod, record_failure
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget
from core.authentication.flow.steps import Facts, Needs, Step, next_step
from core.authentication.model.identities import OtherIdentityLinked, PendingIdentity
from core.authentication.model.login import (
    AccountClosed,
    AccountDeleted,
    LoginFailure,
    OtherUserPresent,
    PreAuthInvalid,
    SignedIn,
    VerifiedSignIn,
    failure_of,
)
from core.authentication.model.policy import POLICY_REFUSALS, PolicyPath
from core.authentication.model.sign_in_log import ConnectionAttempt
from core.authentication.policy_checks import judge_sign_in
from core.authentication.service_access import find_refusal
from core.authentication.session_start import start_session
from core.kernel.access import BlockedByDirectory
from core.kernel.callers import Person, ServiceContext
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.proofs import Proofs, complete, first_method_of, is_by_provider
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction


async def prove(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    method: SignInMethod,
    client: PresentedDevice,
    present_id: UUID | None = None,
    cookie: str | None = None,
    external_for: UUID | None = None,
) -> SignedIn | Flow:
    """Verify an answer. Return the session that it starts, or the stored flow that still needs the second factor.

    `external_for`: as in `ApplicationNeeds`.
    `cookie` is that of the session in this browser, if any: if it is of the same user, a second factor of its last minutes counts.
    `present_id` is the user who is signed in in this browser, if any. A sign-in at an identity provider never replaces them with
    another user: any page can send a browser there, and the provider may not ask its user.

    Raises: AccountClosed, OtherUserPresent; FlowEnded if the flow ended during the request; the errors of the method, of
    `start_session` and of `_complete_link`.
    """
    proved = await method.verify(ports, caller, flow, client)
    flow = proved.flow or flow
    try:
        outcome = await _complete(ports, caller, flow, proved, client, ports.clock.now(), present_id, cookie, external_for)
    except AccountClosed as refusal:
        used, attempt = _first_method(flow, proved), _attempt(proved)
        await record_failure(ports, caller, LoginFailure.CLOSED, used, refusal.user_id, flow.application, connection=attempt)
        raise
    except Refusal as refusal:
        if proved.refused is not None:
            await proved.refused(refusal)
        if isinstance(refusal, (BlockedByDirectory, NoAccessToService, OtherIdentityLinked, *POLICY_REFUSALS)):
            if proved.is_one_time:
                await _use_up(ports, caller, flow, proved)
            user_id = (proved.user_id or flow.user_id) if proved.account is None else proved.account.id
            used, attempt = _first_method(flow, proved), _attempt(proved)
            await record_failure(ports, caller, failure_of(refusal), used, user_id, flow.application, connection=attempt)
        raise
    if isinstance(outcome, SignedIn) and outcome.session.service is not None:
        await confirm_membership(ports, outcome, outcome.session.service.org_id)
    return replace(outcome, request=flow.request) if flow.request and isinstance(outcome, SignedIn) else outcome


async def _use_up(ports: Ports, caller: Caller, flow: Flow, proved: Proved) -> None:
    """Use up the secret of a sign-in that was refused after it was right. The refusal has rolled everything back (security M-1).

    The same code could otherwise be tried again, for example after an attacker has read it.
    """
    person = caller if proved.account is None else _person(proved.account, caller, flow.service)
    with suppress(Refusal):  # another request has used it
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            await proved.lock(tx, person, lambda _: None)


def _first_method(flow: Flow, proved: Proved) -> str:
    return first_method_of(_with(flow, proved, proved.proof.at)) or ""


def _attempt(proved: Proved) -> ConnectionAttempt | None:
    """Return the attempt at an organization's connection, which is in the log of that organization alone, or None."""
    connection_id, org_id = proved.proof.connection, proved.proof.org
    return None if connection_id is None or org_id is None else ConnectionAttempt(connection_id, org_id)


async def _complete(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    proved: Proved,
    client: PresentedDevice,
    now: datetime,
    present_id: UUID | None,
    cookie: str | None,
    external_for: UUID | None,
) -> SignedIn | Flow:
    person = None if proved.account is None else _person(proved.account, caller, flow.service)
    fingerprint = devices.fingerprint(ports, caller, client)
    async with ports.storage.transaction(by=person or caller, in_session=False) as tx:
        proofs = _with(flow, proved, now)
        facts = AccountFacts(tx, flow, fingerprint, proofs[0].connection, now)
        account, identity = await proved.lock(tx, person or caller, facts.send_behind)
        if not account.is_usable:
            raise AccountClosed(account.id) if account.closed_at is None else AccountDeleted(account.id)
        if present_id not in (None, account.id) and is_by_provider((proved.proof,)):
            raise OtherUserPresent
        if person is None:
            person = _person(account, caller, flow.service)
            tx.acts_as(person)
        device, policy = await facts.load(account.id, identity)
        admission = judge_sign_in(ports, policy, proofs, device, now)
        admission = await hide_in_flow(tx, flow, admission, account.id, now, external_for)
        step = next_step(
            Facts(
                needs=Needs(keeps_trust=flow.keeps_trust and not admission.asks_all_factors),
                now=now,
                proofs=proofs,
                factors=account.factors,
                is_trusted=await skips_second(tx, flow, device, account.id, now),
            )
        )
        if step is Step.SECOND_FACTOR:
            earlier = await _find_recent_seconds(ports, tx, flow, account, cookie, now)
            if not earlier:
                return await _save(ports, tx, flow, account, proofs, identity, now)
            with_earlier = judge_sign_in(ports, policy, (*proofs, *earlier), device, now)
            if not (await hide_in_flow(tx, flow, with_earlier, account.id, now, external_for)).is_allowed:
                return await _save(ports, tx, flow, account, proofs, identity, now)
            proofs = (*proofs, *earlier)
        if flow.service is not None and not admission.has_access:
            raise await find_refusal(tx, flow.service.org_id, account.id)
        if flow.service is not None:
            admission.require(ports, PolicyPath.SIGN_IN, person)
        if proved.complete is not None:
            proofs = await proved.complete(tx, account, proofs)
        if identity is not None:
            await _complete_link(ports, tx, account, identity, proofs, person.session_id, now)
        sign_in = VerifiedSignIn(
            person=person,
            account=account,
            proofs=proofs,
            service=flow.service,
            in_browser=flow.in_browser,
            device=device,
            trusts_device=proved.trusts_device,
            for_application=flow.service_id is not None or flow.external_client is not None,
            ends_by=None if flow.service is None else admission.decision.ends_at,
        )
        if flow.is_stored and flow.target is FlowTarget.PAGE:  # nothing else waits for the session
            tx.flows.close(flow, now)
        signed_in = await start_session(ports, tx, sign_in, now)
        if flow.service is not None:
            await admission.save_pass(tx, person.session_id, now)
            signed_in = replace(signed_in, enrollment=admission.enrollment(ports))
        return signed_in


async def _find_recent_seconds(ports: Ports, tx: Transaction, flow: Flow, account: Account, cookie: str | None, now: datetime) -> Proofs:
    """Return the second factors of the last minutes in the browser's session, unless the flow asks for more than a session."""
    if cookie is None or not flow.keeps_trust:
        return ()
    return await session_proofs.find_recent_seconds_of_browser(ports, tx, cookie, account, now)


def _with(flow: Flow, proved: Proved, now: datetime) -> Proofs:
    """Return the proofs with this one. The time of all is when the last one was given.

    A passkey sign-in stands alone, also in a flow with the proof of another user.
    """
    proof = replace(proved.proof, at=now)
    return complete(replace(flow.proofs[0], at=now), proof) if proved.continues else (proof,)


async def _save(
    ports: Ports, tx: Transaction, flow: Flow, account: Account, proofs: Proofs, identity: PendingIdentity | None, now: datetime
) -> Flow:
    end = now + ports.policy.pre_auth_ttl
    waiting = replace(flow, user_id=account.id, proofs=proofs, proofs_expire_at=end, failures=0, identity=identity)
    # The token of an API client has its request, and ends with the proofs.
    stored = replace(waiting, expires_at=now + FLOW_TTL) if flow.in_browser else replace(waiting, request="", expires_at=end)
    if not await tx.flows.save_proofs(stored):
        raise FlowEnded
    return replace(stored, request=flow.request, is_stored=True)


async def _complete_link(
    ports: Ports, tx: Transaction, account: Account, identity: PendingIdentity, proofs: Proofs, session_id: UUID, now: datetime
) -> None:
    """Link the identity of a sign-in to its locked account, and report it to the user of an older account.

    An identity that is already linked in this context gets its new tokens. If only an application knows the identity, and the sign-in is
    not enough for a link, the user is signed in without the link. If the account itself has the identity, an application's link needs
    no further proof and sends no email. The caller must lock the subject before the account.

    Raises: PreAuthInvalid if the identity no longer signs in to this account, because it was linked to another account or
    unlinked in the context where it was known; RecoveryRequired; LinkNeedsProof and OtherIdentityLinked if only the address led
    to the account.
    """
    known = await tx.identities.match(identity.provider, identity.issuer, identity.subject, identity.service_id)
    is_of_another = identity.known_elsewhere if known is None else known.user_id != account.id
    if is_of_another:
        raise PreAuthInvalid
    if known is not None and known.is_here:
        await tx.identities.update_tokens(known.id, identity.email, identity.tokens)
        return
    own = await tx.identities.match(identity.provider, identity.issuer, identity.subject, None)
    is_own = own is not None and own.is_here
    if is_own:
        await factor_changes.require_no_recovery(ports, tx, account, now)
    else:
        try:
            await factor_changes.require_proof_to_link(ports, tx, account, proofs, now)
        except LinkNeedsProof:
            if identity.known_elsewhere:
                return
            raise
    if await tx.identities.add(identity.of(account.id, now)):
        if account.created_at < now and not is_own:
            tx.record(account_events.identity_linked(account.id, identity.provider))
            kind, name = EmailKind.IDENTITY_LINKED, identity.provider
            await security_notices.notify(tx, account, kind, now, session_id=session_id, detail=name)
    elif not identity.known_elsewhere:
        linked = await tx.identities.list_of_user(account.id, identity.service_id)
        if identity.provider in {each.provider for each in linked}:  # otherwise the service was deleted
            raise OtherIdentityLinked


async def confirm_membership_if_admitted(ports: Ports, signed_in: SignedIn, org_id: UUID, service_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any, unless its service refuses the user next."""
    async with ports.storage.reading() as read:
        is_admitted = await read.end_users.may_use(org_id, service_id, signed_in.session.user_id, signed_in.session.created_at)
    if is_admitted:
        await confirm_membership(ports, signed_in, org_id)


async def confirm_membership(ports: Ports, signed_in: SignedIn, org_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any. Signing in to one of its services confirms it."""
    async with ports.storage.autocommit() as statements:
        await statements.members.confirm(org_id, signed_in.session.user_id, signed_in.session.created_at)


def _person(account: Account, caller: Caller, service: ServiceContext | None) -> Person:
    """Return the user who signs in, with the id of the session that may start."""
    return Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=new_id(),
        service=service,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
    )
