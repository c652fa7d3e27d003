"""A new user's first sign-in, on an invitation page.

The email of an invitation proves the mailbox, so a new user chooses a password right on its page. If the organization accepts no
passwords, the mailbox alone signs in, and the user then sets up a factor that the sign-in policy accepts.

That works only for an account that has no user yet. Otherwise a forwarded invitation would open the
account of its recipient: it lives for days, unlike a reset link.
"""

from dataclasses import dataclass, field
from datetime import datetime

from core.accounts import accounts, events, profiles
from core.accounts.factors import new_passwords
from core.accounts.model.accounts import Account, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import TokenPurpose
from core.accounts.model.profiles import ProfileChanges
from core.authentication import joining
from core.authentication.flow.methods import Proved, SendBehind
from core.authentication.flow.model import Flow
from core.authentication.model.login import InvitationAnswer, InviteeHasAccount, InviteeNeedsPassword
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive
from core.kernel.proofs import Method, Proof
from core.kernel.values import KEEP, digest
from core.tenancy import invitations, sign_in_policies
from core.tenancy.model.invitations import InvitationExpired, InviteeCannotJoin
from core.tenancy.model.members import AlreadyMember
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class InvitationSignIn:
    """The token of an invitation's email, and the password and the name that its recipient chose. An empty name changes nothing.

    `password` is None where the organization accepts none.
    """

    token: str = field(repr=False)
    password: str | None = field(repr=False)
    name: str

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Check the invitation and the password.

        The transaction accepts the invitation, creates the account if there is none, and sets its password and name.

        Raises: InviteeHasAccount, InviteeNeedsPassword, NameInvalid; the errors of `find_invitation` and `check_new_password`. In the
        transaction: AlreadyMember, InviteeCannotJoin; the errors of `invitations.add_invited_member`.
        """
        opened = await joining.find_invitation(ports, self.token, None)  # saves the expensive hash; the transaction decides
        if opened.answer is not InvitationAnswer.NEW_USER:
            raise InviteeHasAccount
        invitation, password_hash = opened.received.invitation, None
        if self.password is not None:
            await new_passwords.check_of_address(ports, invitation.email, self.password)
        elif Method.PASSWORD in await sign_in_policies.accepted_ways(ports, invitation.org_id):
            raise InviteeNeedsPassword
        changes = ProfileChanges.parse(name=self.name.strip() or KEEP)
        if self.password is not None:
            password_hash = await ports.passwords.hash(self.password)
        now = ports.clock.now()

        async def lock(tx: Transaction, _: Caller, __: SendBehind) -> tuple[Account, None]:
            account = await self._join(tx, caller, now)
            await tx.one_time_tokens.void(account.id, TokenPurpose.RESET_PASSWORD)
            if password_hash is not None:
                await tx.accounts.set_password(account.id, password_hash, now)
                tx.record(events.password_changed(account.id, "set"))
            await profiles.apply_changes(tx, account, changes, now)
            return await tx.accounts.lock(account.id) or account, None

        return Proved(proof=Proof(Method.EMAIL if password_hash is None else Method.PASSWORD, now), lock=lock)

    async def _join(self, tx: Transaction, caller: Caller, now: datetime) -> Account:
        """Accept the invitation, and return the locked account, which is created if there is none."""
        organization, invitation = await invitations.lock_by_token(tx, caller, self.token)
        if organization.status is not OrganizationStatus.ACTIVE:
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
        if not invitation.is_proved_by(digest(self.token)) or await joining.has_user(tx, account):
            raise InviteeHasAccount
        return await invitations.add_invited_member(tx, organization, invitation, now, by_mail=True)
