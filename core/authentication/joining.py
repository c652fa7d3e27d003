"""The answer to an invitation, on the page that its email links to, and a new user's first sign-in there.

The email of an invitation proves the mailbox, so a new user chooses a password right on its page. If the organization accepts no
passwords, the mailbox alone signs in, and the user then sets up a factor that the sign-in policy accepts.

That works only for an account that has no user yet. Otherwise a forwarded invitation would open the
account of its recipient: it lives for days, unlike a reset link.
"""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from core.accounts import accounts, events, profiles
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.profiles import ProfileChanges
from core.applications.model.services import Service
from core.applications.model.users import AccessPolicy
from core.authentication.browser import check_form_token
from core.authentication.flow import methods
from core.authentication.flow.model import Flow
from core.authentication.model import login
from core.kernel import callers, proofs, values
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive
from core.tenancy import invitations, sign_in_policies
from core.tenancy.model.invitations import InvitationExpired, InviteeCannotJoin
from core.tenancy.model.members import AlreadyMember
from core.tenancy.model.organizations import Organization
from core.tenancy.model.settings import Design
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class AcceptedInvitation:
    """An invitation that was just accepted. `launch_url` opens the organization's application, if there is a single application to open."""

    opened: login.OpenInvitation  # as it was before
    organization: Organization
    design: Design | None
    launch_url: str | None


async def find_invitation(ports: Ports, token: str, person: callers.Person | None) -> login.OpenInvitation:
    """Return the pending invitation with this token, and how its recipient accepts it in this browser. Nothing changes.

    `person` is the user who is signed in in this browser. For the recipient, `token` may also be the
    hash of the token.
    """
    received = await invitations.get_by_token(ports, token, person)
    invitation = received.invitation
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(invitation.org_id)
    if organization is None or organization.status is not callers.OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    if invitation.is_for(person):
        return login.OpenInvitation(received, login.InvitationAnswer.SIGNED_IN)
    # A person without the emailed token must not learn whether there is an account.
    if not invitation.is_proved_by(values.digest(token)):
        return login.OpenInvitation(received, login.InvitationAnswer.UNPROVED)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_email(invitation.email)
        is_used = account is not None and await has_user(read, account)
    return login.OpenInvitation(received, login.InvitationAnswer.SIGN_IN if is_used else login.InvitationAnswer.NEW_USER)


async def has_user(read: storage.Reading | storage.Transaction, account: Account) -> bool:
    """Return whether the account has a user who proved its address, or used it. An organization or a squatter may have created it."""
    if not account.is_usable or account.first_verified_at is None:
        return False
    return account.password_hash is not None or await read.accounts.has_signed_in(account.id)


async def accept_by_form(
    ports: Ports, caller: Caller, token: str, visitor: callers.Visitor | None, session_cookie: str | None, form_token: str | None
) -> AcceptedInvitation:
    """Accept an invitation with the form of its page.

    `form_token` is None if the page was shown without a session. `visitor` is the user of the session
    with this cookie. A recipient without a session signs in afterwards.
    """
    opened = await find_invitation(ports, token, visitor)
    if visitor is not None and form_token is not None and opened.answer is login.InvitationAnswer.SIGNED_IN:
        # Only this confirms the membership. The inviter knows a token of the invitation too, and could send the form from another site.
        check_form_token(session_cookie or "", form_token)
        caller = visitor
    # Load everything before the change, so that a failure afterwards cannot hide that it was made.
    design, url = await invitations.get_design(ports, token), await launch_url(ports, opened.received.invitation.org_id)
    return AcceptedInvitation(opened, await invitations.accept(ports, caller, token), design, url)


async def launch_url(ports: Ports, org_id: UUID) -> str | None:
    """Return the launch URL if exactly one application that admits all members has a launch URL, or None."""
    async with ports.storage.reading() as read:
        services = [
            service
            for policy in (AccessPolicy.ANYONE, AccessPolicy.MEMBERS, AccessPolicy.MEMBERS_AND_ASSIGNED)
            for service in await read.services.with_policy(org_id, policy)
        ]
    urls = [service.access.launch_url for service in services if service.access.launch_url is not None]
    return urls[0] if len(urls) == 1 else None


async def application_to_open(ports: Ports, continuation: email_queue.LinkContinuation) -> Service | None:
    """Return the application that a welcome email named, if its organization is active and it has a launch URL."""
    if continuation.service_id is None:
        return None
    async with ports.storage.reading() as read:
        context = await read.services.context_by_id(continuation.service_id)
        if context is None or context.status is not callers.OrganizationStatus.ACTIVE:
            return None
        service = await read.services.by_id(context.org_id, context.id)
    return None if service is None or service.access.launch_url is None else service


@dataclass(frozen=True, slots=True)
class InvitationSignIn:
    """The token of an invitation's email, and the password and the name that its recipient chose. An empty name changes nothing.

    `password` is None where the organization accepts none.
    """

    token: str = field(repr=False)
    password: str | None = field(repr=False)
    name: str

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Check the invitation and the password.

        The transaction accepts the invitation, creates the account if there is none, and sets its password and name.

        Raises: InviteeHasAccount, InviteeNeedsPassword, NameInvalid; the errors of `find_invitation` and `check_new_password`. In the
        transaction: AlreadyMember, InviteeCannotJoin; the errors of `invitations.add_invited_member`.
        """
        opened = await find_invitation(ports, self.token, None)  # saves the expensive hash; the transaction decides
        if opened.answer is not login.InvitationAnswer.NEW_USER:
            raise login.InviteeHasAccount
        invitation, password_hash = opened.received.invitation, None
        if self.password is not None:
            await accounts.check_password_of_address(ports, invitation.email, self.password)
        elif proofs.Method.PASSWORD in await sign_in_policies.accepted_ways(ports, invitation.org_id):
            raise login.InviteeNeedsPassword
        changes = ProfileChanges.parse(name=self.name.strip() or values.KEEP)
        if self.password is not None:
            password_hash = await ports.passwords.hash(self.password)
        now = ports.clock.now()

        async def lock(tx: storage.Transaction, _: Caller, __: methods.SendBehind) -> tuple[Account, None]:
            account = await self._join(tx, caller, now)
            await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RESET_PASSWORD)
            if password_hash is not None:
                await tx.accounts.set_password(account.id, password_hash, now)
                tx.record(events.password_changed(account.id, "set"))
            await profiles.apply_changes(tx, account, changes, now)
            return await tx.accounts.lock(account.id) or account, None

        return methods.Proved(proof=proofs.Proof(proofs.Method.EMAIL if password_hash is None else proofs.Method.PASSWORD, now), lock=lock)

    async def _join(self, tx: storage.Transaction, caller: Caller, now: datetime) -> Account:
        """Accept the invitation, and return the locked account, which is created if there is none."""
        organization, invitation = await invitations.lock_by_token(tx, caller, self.token)
        if organization.status is not callers.OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
        invitations.require_pending(invitation)
        if invitation.expires_at <= now:  # the sweeper marks it
            raise InvitationExpired
        # Lock order: organization, membership, account.
        existing = await tx.accounts.by_email(invitation.email)
        if existing is not None and await tx.members.lock(organization.id, existing.id) is not None:
            raise AlreadyMember
        # Not `lock_by_email`: it does not see an account that another transaction is creating.
        try:
            account, _is_new = await accounts.find_or_add(tx, invitation.email, now)
        except EmailNotFree:
            raise InviteeCannotJoin from None
        if not invitation.is_proved_by(values.digest(self.token)) or await has_user(tx, account):
            raise login.InviteeHasAccount
        return await invitations.add_invited_member(tx, organization, invitation, now, by_mail=True)
