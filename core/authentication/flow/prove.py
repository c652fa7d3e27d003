"""A step in every sign-in: a method verifies an answer, and then a session starts, or the second factor remains.

All methods are treated alike: the second factor is required (security A-10), the device is recognized, and the
same records are written.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from core.accounts import devices, factor_changes, security_notices
from core.accounts import events as account_events
from core.accounts.model import accounts
from core.accounts.model.devices import DeviceMatch, PresentedDevice
from core.accounts.model.email_queue import EmailKind
from core.applications.model.users import NoAccessToService
from core.authentication.admissions import Admission
from core.authentication.flow import methods
from core.authentication.flow.facts import SignInQuery
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget
from core.authentication.model import identities, login
from core.authentication.model.policy import POLICY_REFUSALS
from core.authentication.model.sign_in_log import ConnectionAttempt
from core.authentication.session_start import start_session
from core.kernel import access
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.proofs import Proofs, complete, first_method_of, is_by_provider
from core.kernel.sign_in_policy.steps import Ask, Start, Step
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAnswer:
    """An answer that a method has verified, and the client that sent it."""

    caller: Caller
    flow: Flow
    proved: methods.Proved
    client: PresentedDevice
    now: datetime
    present_id: UUID | None
    cookie: str | None = field(repr=False)
    external_for: UUID | None

    @property
    def proofs(self) -> Proofs:
        """The proofs from the flow and from this answer, all with the answer's time.

        A passkey sign-in stands alone, also in a flow with the proof of another user.
        """
        proof = replace(self.proved.proof, at=self.now)
        return complete(replace(self.flow.proofs[0], at=self.now), proof) if self.proved.continues else (proof,)

    @property
    def connection(self) -> ConnectionAttempt | None:
        """The attempt at an organization's connection, which is in the log of that organization alone, or None."""
        connection_id, org_id = self.proved.proof.connection, self.proved.proof.org
        return None if connection_id is None or org_id is None else ConnectionAttempt(connection_id, org_id)

    def person(self, account: accounts.Account) -> Person:
        """Return the user who signs in, with the id of the session that may start."""
        return Person(
            user_id=account.id,
            email=account.email,
            email_verified=account.email_verified_at is not None,
            session_id=new_id(),
            service=self.flow.service,
            address=self.caller.address,
            agent=self.caller.agent,
            request_id=self.caller.request_id,
        )


async def prove(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    method: methods.SignInMethod,
    client: PresentedDevice,
    present_id: UUID | None = None,
    cookie: str | None = None,
    external_for: UUID | None = None,
) -> login.SignedIn | Flow:
    """Verify an answer. Return the session that it starts, or the stored flow that still needs the second factor.

    `external_for`: as in `Opened`. `cookie` is the cookie for the session in this browser, if any. If the session has the same user, a
    second factor from its last minutes counts. `present_id`: the user of this browser's session, or None. A sign-in at an identity provider
    never replaces this user with another user: any page can send a browser there, and the provider may not ask its user.

    Raises: AccountClosed, OtherUserPresent; FlowEnded if the flow ended during the request; the errors from the method, `start_session` and
    `_complete_link`.
    """
    proved = await method.verify(ports, caller, flow, client)
    answer = VerifiedAnswer(
        caller=caller,
        flow=proved.flow or flow,
        proved=proved,
        client=client,
        now=ports.clock.now(),
        present_id=present_id,
        cookie=cookie,
        external_for=external_for,
    )
    try:
        outcome = await _complete(ports, answer)
    except access.AccountClosed as refusal:
        await _record_failure(ports, answer, login.LoginFailure.CLOSED, refusal.user_id)
        raise
    except Refusal as refusal:
        if proved.refused is not None:
            await proved.refused(refusal)
        if isinstance(refusal, (access.BlockedByDirectory, NoAccessToService, identities.OtherIdentityLinked, *POLICY_REFUSALS)):
            if proved.is_one_time:
                await _use_up(ports, answer)
            user_id = (proved.user_id or answer.flow.user_id) if proved.account is None else proved.account.id
            await _record_failure(ports, answer, login.failure_of(refusal), user_id)
        raise
    if isinstance(outcome, Flow):
        return outcome
    if outcome.session.service is not None:
        await confirm_membership(ports, outcome, outcome.session.service.org_id)
    return replace(outcome, request=answer.flow.request)


async def _record_failure(ports: Ports, answer: VerifiedAnswer, reason: login.LoginFailure, user_id: UUID | None) -> None:
    used, application = first_method_of(answer.proofs) or "", answer.flow.application
    await methods.record_failure(ports, answer.caller, reason, used, user_id, application, connection=answer.connection)


async def _use_up(ports: Ports, answer: VerifiedAnswer) -> None:
    """Use up the secret of a sign-in that was refused after it was right. The refusal has rolled everything back (security M-1).

    The same code could otherwise be tried again, for example after an attacker has read it.
    """
    person = answer.caller if answer.proved.account is None else answer.person(answer.proved.account)
    with suppress(Refusal):  # another request has used it
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            await answer.proved.lock(tx, person, lambda _: None)


async def _complete(ports: Ports, answer: VerifiedAnswer) -> login.SignedIn | Flow:
    """Lock the account, judge the sign-in, and carry the verdict out."""
    flow, proofs, known = answer.flow, answer.proofs, answer.proved.account
    person = None if known is None else answer.person(known)
    fingerprint = devices.fingerprint(ports, answer.caller, answer.client)
    async with ports.storage.transaction(by=person or answer.caller, in_session=False) as tx:
        query = SignInQuery(ports, tx, flow, fingerprint, answer.now, proofs[0].connection, answer.external_for, answer.cookie)
        account, identity = await answer.proved.lock(tx, person or answer.caller, query.send_behind)
        person = person or answer.person(account)
        tx.acts_as(person)
        device = await query.load(account.id)
        facts = query.facts(account, device, proofs, () if identity is None else (identity.provider,))
        is_other = answer.present_id not in (None, account.id) and is_by_provider((answer.proved.proof,))
        verdict = await query.judge(account, replace(facts, replaces_other=is_other))
        if isinstance(verdict, Ask) and verdict.step is Step.SECOND_FACTOR:
            return await _save(ports, tx, answer, account, identity)
        admission = Admission(query.subject, verdict)
        admission.require(ports, person)
        return await _start(ports, tx, answer, _Admitted(person, account, device, identity, admission))


@dataclass(frozen=True, slots=True)
class _Admitted:
    """The user of a locked account who may sign in now, and the identity to link."""

    person: Person
    account: accounts.Account
    device: DeviceMatch
    identity: identities.PendingIdentity | None
    admission: Admission

    @property
    def earlier(self) -> Proofs:
        return self.admission.verdict.earlier if isinstance(self.admission.verdict, Start) else ()


async def _start(ports: Ports, tx: Transaction, answer: VerifiedAnswer, admitted: _Admitted) -> login.SignedIn:
    """Start the session."""
    flow, person, account, now = answer.flow, admitted.person, admitted.account, answer.now
    proofs, admission = (*answer.proofs, *admitted.earlier), admitted.admission
    if answer.proved.complete is not None:
        proofs = await answer.proved.complete(tx, account, proofs)
    if admitted.identity is not None:
        await _complete_link(ports, tx, account, admitted.identity, proofs, person.session_id, now)
    sign_in = login.VerifiedSignIn(
        person=person,
        account=account,
        proofs=proofs,
        service=flow.service,
        in_browser=flow.in_browser,
        device=admitted.device,
        trusts_device=answer.proved.trusts_device,
        for_application=flow.service_id is not None or flow.external_client is not None,
        ends_by=None if flow.service is None else admission.decision.ends_at,
    )
    if flow.is_stored and flow.target is FlowTarget.PAGE:  # nothing else waits for the session
        tx.flows.close(flow, now)
    signed_in = await start_session(ports, tx, sign_in, now)
    if flow.service is None:
        return signed_in
    await admission.save_pass(tx, person.session_id, now)
    return replace(signed_in, enrollment=admission.enrollment(ports))


async def _save(
    ports: Ports, tx: Transaction, answer: VerifiedAnswer, account: accounts.Account, identity: identities.PendingIdentity | None
) -> Flow:
    """Store the proofs in the flow, which waits for the second factor."""
    flow, end = answer.flow, answer.now + ports.policy.pre_auth_ttl
    waiting = replace(flow, user_id=account.id, proofs=answer.proofs, proofs_expire_at=end, failures=0, identity=identity)
    # The token of an API client has its request, and ends with the proofs.
    stored = replace(waiting, expires_at=answer.now + FLOW_TTL) if flow.in_browser else replace(waiting, request="", expires_at=end)
    if not await tx.flows.save_proofs(stored):
        raise FlowEnded
    return replace(stored, request=flow.request, is_stored=True)


async def _complete_link(
    ports: Ports,
    tx: Transaction,
    account: accounts.Account,
    identity: identities.PendingIdentity,
    proofs: Proofs,
    session_id: UUID,
    now: datetime,
) -> None:
    """Link the sign-in's identity to its locked account, and report the link to the user if the account is older.

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
        raise login.PreAuthInvalid
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
        except accounts.LinkNeedsProof:
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
            raise identities.OtherIdentityLinked


async def confirm_membership_if_admitted(ports: Ports, signed_in: login.SignedIn, org_id: UUID, service_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any, unless its service refuses the user next."""
    async with ports.storage.reading() as read:
        is_admitted = await read.end_users.may_use(org_id, service_id, signed_in.session.user_id, signed_in.session.created_at)
    if is_admitted:
        await confirm_membership(ports, signed_in, org_id)


async def confirm_membership(ports: Ports, signed_in: login.SignedIn, org_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any. A sign-in to the organization's services confirms it."""
    async with ports.storage.autocommit() as statements:
        await statements.members.confirm(org_id, signed_in.session.user_id, signed_in.session.created_at)
