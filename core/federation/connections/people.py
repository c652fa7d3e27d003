"""Sign-in through a connection of an organization: which account a person gets, and the facts that every sign-in renews.

The subject alone finds the account of a known person. The address finds or creates an account only at the first sign-in, and
only at a domain that the organization has proved.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts import accounts, mailbox
from core.accounts import events as accounts_events
from core.accounts.factors import own_proofs
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account, AccountOrigin, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow import methods
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import ConnectionAttempt
from core.federation.connections import events, logins, mapped_groups
from core.federation.connections.logins import fault_of
from core.federation.connections.model import people
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import ConnectionIdentity
from core.federation.connections.model.saml_responses import SamlResponseRefused
from core.federation.connections.saml import require_unused
from core.kernel import errors, values
from core.kernel.access import BlockedByDirectory
from core.kernel.causes import Caller
from core.kernel.proofs import Method, Proofs, SessionProofs, in_session
from core.kernel.roles import MEMBER
from core.tenancy import events as tenancy_events
from core.tenancy.model import organizations
from ports import Ports, crypto
from ports.storage import Transaction

_ADDRESS_REFUSALS = (people.AddressOutside, people.AddressReserved, people.OtherPersonLinked, people.PlatformOwnerRefused)


@dataclass(frozen=True, slots=True)
class ConnectionAnswer:
    """The answer of an organization's identity provider that signed a person in."""

    person: AssertedPerson

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Return the proof of the sign-in, which finds or creates the account.

        Raises, in the transaction: LinkNeeded, ConnectionNotActive, AddressOutside, AddressReserved, PlatformOwnerRefused,
        OtherPersonLinked, ConnectionTeamFull, BlockedByDirectory, SamlResponseRefused.
        """
        person, now, login = self.person, ports.clock.now(), values.new_id()

        async def lock(tx: Transaction, _: Caller, send_behind: methods.SendBehind) -> tuple[Account, PendingIdentity | None]:
            used = _use_assertion(tx, person)
            account = await _find_account(tx, person, now, send_behind)
            await require_unused(used)
            if account.is_usable:
                await logins.add(ports, tx, login, person, account.id, now)
            return account, None

        async def refused(refusal: errors.Refusal) -> None:
            reason = LoginFailure.ADDRESS if isinstance(refusal, _ADDRESS_REFUSALS) else LoginFailure.PROVIDER
            if isinstance(refusal, (*_ADDRESS_REFUSALS, people.ConnectionNotActive, people.ConnectionTeamFull, SamlResponseRefused)):
                attempt = ConnectionAttempt(person.connection_id, person.org_id, fault_of(refusal), person.claim_names)
                await methods.record_failure(ports, caller, reason, Method.CONNECTION, None, flow.application, connection=attempt)

        return methods.Proved(proof=people.proof_of(person, now, is_fresh=flow.wants_fresh, login=login), lock=lock, refused=refused)


def _use_assertion(tx: Transaction, person: AssertedPerson) -> Awaitable[bool] | None:
    """Use up the assertion. The hash stays only with what the sign-in stores: after a refusal, the provider request has ended."""
    if person.assertion is None:
        return None
    return tx.connections.use_message(person.org_id, person.connection_id, person.assertion.hash, person.assertion.kept_until)


async def _find_account(tx: Transaction, person: AssertedPerson, now: datetime, send_behind: methods.SendBehind) -> Account:
    """Return the locked account of a person. A closed account is returned as it is."""
    # Lock order: the subject before all other locks. Of two first sign-ins at once, the second one finds the account of the first.
    await tx.connection_identities.lock_subject(person.connection_id, person.subject)
    known, organization = await _find_subject(tx, person), None
    if not known.is_member or known.groups_for(person.groups) != known.given:  # the sign-in changes this
        organization = await tx.organizations.lock(person.org_id) or errors.refuse(people.ConnectionNotActive)
    if known.user_id is None:
        assert organization is not None, "an unknown person is no member"
        return await _find_by_address(tx, organization, person, now)
    locked = tx.accounts.lock(known.user_id)
    # The end of a connection, or of a link, locks the account: this sees its result.
    identity = tx.connection_identities.use(person.org_id, person.connection_id, person.subject, known.user_id, person.email, now)
    if organization is None:  # otherwise the sign-in changes facts about the account first
        send_behind(known.user_id)
    account, is_blocked = await locked, await identity
    if account is None or is_blocked is None:
        raise people.ConnectionNotActive
    if account.is_usable:
        if account.is_platform_owner:
            raise people.PlatformOwnerRefused
        if is_blocked:
            raise BlockedByDirectory
        if organization is not None:
            await _join(tx, organization, account, now)
            await mapped_groups.renew(tx, await _find_subject(tx, person), person, account.id, now)
        if not known.is_provisioned:  # what the directory says wins
            await follow_names(tx, account, person, now)
        account = await verify_address(tx, account, person, now)
    return account


async def _find_subject(tx: Transaction, person: AssertedPerson) -> people.ConnectionSubject:
    """Return the state of the person at the connection."""
    known = await tx.connection_identities.subject(person.org_id, person.connection_id, person.subject)
    if known is None or not known.is_active:
        raise people.ConnectionNotActive
    return known


async def _find_by_address(tx: Transaction, organization: organizations.Organization, person: AssertedPerson, now: datetime) -> Account:
    """Return the locked account for a person that the connection does not know yet: a new one, or one that the organization controls.

    The organization is locked, so the connection stays active.
    """
    await _find_subject(tx, person)
    email = person.email or errors.refuse(people.AddressOutside)
    if await tx.domains.verified_owner(email) != organization.id:
        raise people.AddressOutside
    try:
        account, is_new = await accounts.find_or_add(tx, email, now, origin=AccountOrigin.CONNECTION, org_id=organization.id)
    except EmailNotFree:
        raise people.AddressReserved from None
    if is_new:
        account = await _complete_new(tx, account, person, now)
    elif account.is_usable:
        account = await _require_controlled(tx, organization, account, person, now)
    else:
        return account
    await _link(tx, organization, account, person, now)
    return account


async def _complete_new(tx: Transaction, account: Account, person: AssertedPerson, now: datetime) -> Account:
    if person.is_email_verified:
        await tx.accounts.mark_verified(account.id, now)
    else:  # as after a registration
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.VERIFY_EMAIL, account.email, now, org_id=person.org_id))
    await tx.accounts.set_profile(account.id, person.profile, now)
    tx.record(accounts_events.signed_up(account.id, person.org_id))
    return await tx.accounts.lock(account.id) or errors.refuse(people.ConnectionNotActive)


async def _require_controlled(
    tx: Transaction, organization: organizations.Organization, account: Account, person: AssertedPerson, now: datetime
) -> Account:
    """Check that the organization controls this account, and that its address is that of the person, so that no question is needed.

    Only the word of the identity provider proves the address. If it was never verified here, it proves nothing against another person
    of the same provider: their account would change hands.
    """
    if await tx.directory_blocks.exists(organization.id, account.id):
        raise BlockedByDirectory
    control = await tx.accounts.account_control(account.id, organization.id)
    if not (person.is_email_verified and control.controls_account and control.at_verified_domain) or control.is_of_admin:
        raise people.LinkNeeded
    if account.first_verified_at is not None:
        return account
    if (person.connection_id, account.id) in await tx.connection_identities.connections_of(organization.id, (account.id,)):
        raise people.OtherPersonLinked
    return await mailbox.prove_mailbox(tx, account, now) or errors.refuse(people.LinkNeeded)


async def _link(tx: Transaction, organization: organizations.Organization, account: Account, person: AssertedPerson, now: datetime) -> None:
    """Make the account known at the connection, and the user a member."""
    identity = ConnectionIdentity(
        org_id=person.org_id,
        connection_id=person.connection_id,
        user_id=account.id,
        subject=person.subject,
        email=person.email,
        linked_at=now,
        last_used_at=now,
    )
    if not await tx.connection_identities.add(identity):
        raise people.OtherPersonLinked
    tx.record(events.person_linked(identity))
    if account.created_at < now:
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.CONNECTION_LINKED, account.email, now, org_id=organization.id))
    await _join(tx, organization, account, now)
    await mapped_groups.renew(tx, await _find_subject(tx, person), person, account.id, now)


async def _join(tx: Transaction, organization: organizations.Organization, account: Account, now: datetime) -> None:
    """Make the user a member of the locked organization, or confirm the membership."""
    if await tx.members.exists(organization.id, account.id):
        await tx.members.confirm(organization.id, account.id, now)
        return
    if organization.member_count >= organization.user_limit.value:
        raise people.ConnectionTeamFull
    membership = organizations.Membership(
        id=values.new_id(), org_id=organization.id, user_id=account.id, role=MEMBER, created_at=now, confirmed_at=now
    )
    await tx.members.add(membership)
    tx.record(tenancy_events.user_joined(organization.id, account.id, MEMBER))


# An account of the user's own


async def ask_to_link(ports: Ports, caller: Caller, flow: Flow, person: AssertedPerson) -> Flow:
    """Let the flow wait for a sign-in to the account that exists already, with all its factors. Raises: FlowEnded."""
    now = ports.clock.now()
    link = _seal_logout(ports, people.PendingLink(values.new_id(), person, now, flow.wants_fresh))
    waiting = replace(flow, connection_link=link.document, keeps_trust=False, user_id=None, proofs=(), expires_at=now + FLOW_TTL)
    async with ports.storage.transaction(by=caller) as tx:
        used = _use_assertion(tx, person)
        if not await tx.flows.ask_to_link(waiting):
            raise FlowEnded
        await require_unused(used)
    return replace(waiting, is_stored=True)


async def agree_to_link(ports: Ports, caller: Caller, flow: Flow, question: str) -> bool:
    """Let the next sign-in of the flow make the link. Return False if the question was about another link than the flow has now."""
    link = people.PendingLink.read(flow.connection_link, ports.clock.now())
    if link is None or str(link.id) != question:
        return False
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.flows.ask_to_link(replace(flow, connection_link=replace(link, is_agreed=True).document))


async def drop_link(ports: Ports, caller: Caller, flow: Flow) -> None:
    """Forget the link of a flow, because the user does not want it."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.flows.drop_link(flow)


@dataclass(frozen=True, slots=True)
class LinkQuestion:
    """The page that asks whether to link an account."""

    id: UUID
    organization: str
    connection: str
    email: values.Email


async def find_question(ports: Ports, flow: Flow) -> LinkQuestion | None:
    """Return the question on the page of a flow, or None if no link waits there."""
    link = people.PendingLink.read(flow.connection_link, ports.clock.now())
    if link is None or link.person.email is None:
        return None
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(link.person.connection_id)
        organization = await read.organizations.by_id(link.person.org_id)
    if connection is None or organization is None:
        return None
    return LinkQuestion(link.id, organization.name, connection.name, link.person.email)


def address_to_link(ports: Ports, flow: Flow) -> values.Email | None:
    """Return the address of the account that the user of a flow must sign in to, because they agreed to link it, or None."""
    link = _find_agreed(ports, flow)
    return None if link is None else link.person.email


def with_link(ports: Ports, flow: Flow, method: methods.SignInMethod) -> methods.SignInMethod:
    """Return the method of a sign-in in this flow, which also makes the link that the user agreed to, if any.

    Another connection proves nothing about the account itself, so it makes no link.
    """
    link = None if isinstance(method, ConnectionAnswer) else _find_agreed(ports, flow)
    return method if link is None else _LinkingSignIn(method, link, flow)


def made_link(method: methods.SignInMethod, proofs: SessionProofs) -> bool | None:
    """Return whether a completed sign-in by `with_link` has made the link that its user agreed to, or None if they agreed to none."""
    if not isinstance(method, _LinkingSignIn):
        return None
    return any(proof.method is Method.CONNECTION for proof in in_session(proofs, method.link.person.org_id))


def _find_agreed(ports: Ports, flow: Flow) -> people.PendingLink | None:
    link = people.PendingLink.read(flow.connection_link, ports.clock.now())
    return link if link is not None and link.is_agreed else None


@dataclass(frozen=True, slots=True)
class _LinkingSignIn:
    """A sign-in of an account's own, which also links the account to a connection, as its user agreed to."""

    method: methods.SignInMethod
    link: people.PendingLink
    flow: Flow

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Verify the answer, and return the proof of a sign-in that also makes the link.

        Raises: the errors of the method; ConnectionTeamFull.
        """
        proved, person, now = await self.method.verify(ports, caller, flow, client), self.link.person, ports.clock.now()
        organization: organizations.Organization | None = None

        async def lock(tx: Transaction, user: Caller, send_behind: methods.SendBehind) -> tuple[Account, PendingIdentity | None]:
            nonlocal organization
            await tx.connection_identities.lock_subject(person.connection_id, person.subject)
            organization = await tx.organizations.lock(person.org_id)
            return await proved.lock(tx, user, send_behind)

        async def complete(tx: Transaction, account: Account, proofs: Proofs) -> Proofs:
            await tx.flows.drop_link(self.flow)
            is_shown = await own_proofs.find_passkey_step(ports, tx, account, proofs, now) is None
            if not is_shown or organization is None or not await _may_link(tx, organization, account, person):
                return proofs
            await _link(tx, organization, account, person, now)
            login = values.new_id()
            await logins.add(ports, tx, login, _with_logout(ports, self.link), account.id, now)
            return (people.proof_of(person, self.link.at, is_fresh=self.link.is_fresh, login=login), *proofs)

        return replace(proved, lock=lock, complete=complete)


def _seal_logout(ports: Ports, link: people.PendingLink) -> people.PendingLink:
    """Return the link with the encrypted values for a sign-out at the identity provider: an ID token is a secret."""
    if link.person.session is None:
        return link
    sealed = ports.vault.seal(json.dumps(dict(link.person.session.logout)).encode(), _logout_context(link))
    return replace(link, logout=b64encode(sealed).decode())


def _with_logout(ports: Ports, link: people.PendingLink) -> AssertedPerson:
    """Return the person of a stored link with the values for a sign-out, or without them if they cannot be decrypted."""
    session = link.person.session
    if session is None or link.logout is None:
        return link.person
    try:
        logout = json.loads(ports.vault.open(b64decode(link.logout), _logout_context(link)))
    except crypto.SealBroken:  # the key may have been removed since: then a sign-out here does not go on at the identity provider
        return link.person
    return replace(link.person, session=replace(session, logout=logout))


def _logout_context(link: people.PendingLink) -> crypto.SecretContext:
    return crypto.SecretContext("sign_in_flows", str(link.id), "connection_link")


async def _may_link(tx: Transaction, organization: organizations.Organization, account: Account, person: AssertedPerson) -> bool:
    """Return whether this account is the one to link, and all is still as when the user was asked. Otherwise they sign in without the link.

    Platform owners learn only here that their account is never linked: the identity provider must not learn who they are.
    """
    known = await tx.connection_identities.subject(person.org_id, person.connection_id, person.subject)
    return (
        known is not None
        and known.is_active
        and known.user_id is None
        and account.email == person.email
        and account.email_verified_at is not None
        and not account.is_platform_owner
        and await tx.domains.verified_owner(account.email) == organization.id
        and not await tx.directory_blocks.exists(organization.id, account.id)
    )


async def follow_names(tx: Transaction, account: Account, person: AssertedPerson, now: datetime) -> None:
    """Give an account that the organization controls the names that the identity provider sends now. Its address stays."""
    profile = person.profile.names_over(account.profile)
    if profile == account.profile or account.origin_org_id != person.org_id:
        return
    if (await tx.accounts.account_control(account.id, person.org_id)).controls_account:
        await tx.accounts.set_profile(account.id, profile, now)
        tx.record(accounts_events.profile_updated(account.id, account.profile.changed_fields(profile)))


async def verify_address(tx: Transaction, account: Account, person: AssertedPerson, now: datetime) -> Account:
    """Take the word of the identity provider for the address of an account that the connection created, and return the account.

    Only the identity provider has a way into such an account, so nothing is cleared (security A-7).
    """
    is_own = account.origin is AccountOrigin.CONNECTION and account.origin_org_id == person.org_id
    is_proof = is_own and person.is_email_verified and person.email == account.email
    if account.first_verified_at is not None or not is_proof or await tx.domains.verified_owner(account.email) != person.org_id:
        return account
    await tx.accounts.mark_verified(account.id, now)
    return await tx.accounts.lock(account.id) or errors.refuse(people.ConnectionNotActive)
