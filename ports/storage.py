"""Every question asked of storage, on one page on purpose: who writes a use case sees all there is to ask, and all that is locked.

A transaction exposes repositories; leaving its block commits, and any exception, cancellation included, rolls it back. Every method
is one statement, named for the question it answers; the exceptions are `Sealed.renew`, `Housekeeping.sweep` and `AuditRead.page`, which
say so. "Now" is always a parameter. Times are UTC. Every method may raise core.errors.StorageDown. Lock order everywhere: organization,
membership, account, then the rest (security.md Z-6).
"""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import Caller, OrganizationStatus, Role, Standing
from core.accounts import Account
from core.audit import Entry, Filter
from core.events import Event
from core.governance import ListedOrganization
from core.guesses import Allowance, Secret
from core.housekeeping import Sealed as SealedKind
from core.housekeeping import Sweep
from core.invitations import Invitation, InvitationStatus, ListedInvitation, Offer
from core.limits import Bucket
from core.mails import Mail, MailKind, Outcome
from core.members import ListedMember
from core.one_time_tokens import Purpose
from core.organizations import Membership, Organization, Tier
from core.platform import Figures
from core.sessions import Presented, Refreshed, Session
from core.signing_keys import SigningKey
from core.values import Email, Listed, Page


class AccountsRead(Protocol):
    """Accounts, looked at."""

    async def by_email(self, email: Email) -> Account | None:
        """The account with this address, usable or not."""
        ...

    async def by_id(self, user_id: UUID) -> Account | None: ...
    async def platform_owner_exists(self) -> bool: ...


class Accounts(AccountsRead, Protocol):
    """Accounts, changed."""

    async def add(self, account: Account) -> None:
        """Raises EmailTaken."""
        ...

    async def add_if_free(self, account: Account) -> bool:
        """Add the account unless another one has its address; whether it was added."""
        ...

    async def lock(self, user_id: UUID) -> Account | None:
        """The account, locked until the transaction ends."""
        ...

    async def lock_by_email(self, email: Email) -> Account | None: ...

    async def lock_by_token(self, token_hash: bytes, purpose: Purpose) -> Account | None:
        """The account that a one-time token was made for, locked; whether the token is still good is another question."""
        ...

    async def lock_for_login(self, user_id: UUID, password_hash: str) -> bool:
        """Lock the account if it may still sign in with the password that was checked: same hash, usable, address verified."""
        ...

    async def lock_platform_owners(self) -> None:
        """Make others who would change who is a platform owner wait."""
        ...

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """The address is proved; one that was proved before keeps its time."""
        ...

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None: ...

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """The new address is unverified. Raises EmailTaken."""
        ...

    async def promote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner."""
        ...

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Whether the account is a platform owner in good standing, which it then stays until the transaction ends."""
        ...


class OneTimeTokensRead(Protocol):
    async def is_live(self, token_hash: bytes, purpose: Purpose, now: datetime) -> bool: ...


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Tokens of mails: kept as SHA-256, looked up by purpose and hash, good once (security.md A-5)."""

    async def add(
        self, token_hash: bytes, purpose: Purpose, user_id: UUID, email: Email, *, created_at: datetime, expires_at: datetime
    ) -> None: ...

    async def newer_exists(self, user_id: UUID, purpose: Purpose, created_at: datetime) -> bool:
        """Whether there is an unused token that was asked for later than that."""
        ...

    async def redeem(self, token_hash: bytes, purpose: Purpose, now: datetime) -> Email | None:
        """Use the token up: the address it was sent to, or None when it is unknown, expired or used. Exactly one caller wins."""
        ...

    async def void(self, user_id: UUID, purpose: Purpose) -> None:
        """Remove every token of this purpose."""
        ...


class SessionsRead(Protocol):
    async def standing(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """Everything an authenticated request is judged by, or None unless session and account are live.

        A session of an impersonator lives only while that person is a platform owner and the impersonated one is not (I-3).
        """
        ...

    async def standing_in(self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """The same, with the organization of that slug, and what the person is in it, as `acts_in`."""
        ...


class Sessions(SessionsRead, Protocol):
    """Sessions and their refresh tokens, which are kept as SHA-256."""

    async def begin(self, session: Session, refresh_hash: bytes) -> None: ...

    async def presented(self, token_hash: bytes, now: datetime) -> Presented | None:
        """What is known of a refresh token that was not rotated."""
        ...

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End the session; one that has ended stays as it is."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...
    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None: ...

    async def end_in(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """End the person's sessions whose context is this organization (security.md S-4)."""
        ...

    async def select(self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime) -> datetime | None:
        """Give the live session this organization as its context and another refresh token, and rotate the current one out.

        It then lives until `expires_at`, but never past its absolute end, which is returned; None if it is not live any more, or if its
        refresh token was rotated at this very moment.
        """
        ...


class Logins(Protocol):
    """The lasting record of logins (identity.md section 2.8)."""

    async def succeeded(
        self, user_id: UUID, session_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None
    ) -> None: ...


class FailedLogins(Protocol):
    async def failed(self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None) -> None:
        """Recorded without waiting for the disk: a known account must not answer later than an unknown one (security.md B-2)."""
        ...


class TiersRead(Protocol):
    async def all(self) -> list[Tier]:
        """Every tier, the smallest first."""
        ...

    async def by_id(self, tier_id: UUID) -> Tier | None: ...
    async def by_name(self, name: str) -> Tier | None: ...


class Tiers(TiersRead, Protocol):
    async def put(self, tier: Tier) -> None:
        """Add the tier, or give the one of this name these limits and this price; its id stays."""
        ...


class OrganizationsRead(Protocol):
    """Organizations, looked at."""

    async def by_id(self, org_id: UUID) -> Organization | None: ...

    async def of_person(self, user_id: UUID) -> list[tuple[Organization, Membership]]:
        """Those that the person is a member of, whatever their status, by slug."""
        ...

    async def governed(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int
    ) -> Listed[ListedOrganization]:
        """Those with this status and tier, the newest first, with their owners."""
        ...


class Organizations(OrganizationsRead, Protocol):
    """Organizations, changed."""

    async def lock(self, org_id: UUID) -> Organization | None:
        """The organization, locked until the transaction ends: the first lock of every transaction that changes something of it."""
        ...

    async def lock_of_invitation(self, token_hash: bytes) -> Organization | None:
        """The organization that a token invites to, locked; whether the invitation is still good is another question."""
        ...

    async def add(self, organization: Organization) -> None:
        """Raises SlugTaken."""
        ...

    async def save(self, organization: Organization) -> None:
        """Write all that can change of a locked organization; `member_count` is not among it."""
        ...

    async def delete(self, org_id: UUID, now: datetime) -> None:
        """Remove a locked organization and what hangs on it; a tombstone tells Sweep.DELETED_ORGANIZATIONS to remove the records of it."""
        ...

    async def purge(self, org_id: UUID, limit: int) -> None:
        """Remove at most `limit` records (audit entries, totals, events, logins) of a deleted organization."""
        ...


class MembersRead(Protocol):
    """Memberships, looked at."""

    async def page(self, org_id: UUID, role: Role | None, page: Page) -> list[ListedMember]:
        """Those of the organization with this role, the oldest first."""
        ...

    async def count(self, org_id: UUID, role: Role) -> int:
        """How many have this role. How many there are altogether is Organization.member_count."""
        ...

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether this person is a member of the organization."""
        ...


class Members(MembersRead, Protocol):
    """Memberships, changed. The organization is locked before any of these, but for `lock` where only sessions follow."""

    async def lock(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership, locked until the transaction ends."""
        ...

    async def add(self, membership: Membership) -> None:
        """Also counts it. Raises AlreadyAMember."""
        ...

    async def set_role(self, org_id: UUID, user_id: UUID, role: Role) -> None: ...

    async def remove(self, org_id: UUID, user_id: UUID) -> None:
        """Also counts it out."""
        ...


class Confirmations(Protocol):
    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """The member took part in the organization; the first time counts (the terms of security.md)."""
        ...


class InvitationsRead(Protocol):
    """Invitations, looked at. In the first three, one that is pending past its time is shown as expired."""

    async def page(self, org_id: UUID, status: InvitationStatus | None, page: Page, now: datetime) -> Listed[ListedInvitation]:
        """Those of the organization with this status, the newest first."""
        ...

    async def offers_to(self, email: Email, now: datetime) -> list[Offer]:
        """Pending, unexpired invitations for this address, the newest first."""
        ...

    async def offer(self, token_hash: bytes, now: datetime) -> Offer | None:
        """The invitation that this token belongs to, whatever its status."""
        ...

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> Invitation | None:
        """With the status that is stored, as in the next two."""
        ...

    async def by_token(self, org_id: UUID, token_hash: bytes) -> Invitation | None:
        """The one of the organization that has this token, whatever its status."""
        ...

    async def pending(self, org_id: UUID, email: Email) -> Invitation | None:
        """The pending one for this address, of which there is one at most; it may be past its time."""
        ...


class Invitations(InvitationsRead, Protocol):
    """Invitations, changed. The organization is locked before any of these but `expire`."""

    async def add(self, invitation: Invitation) -> None:
        """Raises InvitationAlreadySent."""
        ...

    async def end(self, org_id: UUID, invitation_id: UUID, status: InvitationStatus, now: datetime) -> bool:
        """Give a pending invitation a final status; false where it has one. Exactly one caller wins."""
        ...

    async def void(self, org_id: UUID, invited_by: UUID, roles: Collection[Role], now: datetime) -> list[Invitation]:
        """Cancel what this person has invited to these roles and could still be accepted (R-4); returns what it were."""
        ...

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        """When the n-th newest invitation was made, 1 being the newest; None if there are fewer."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        """Mark at most `limit` pending invitations, of whatever organization, that are past their time; those in use are left for later."""
        ...


class AuditRead(Protocol):
    async def page(self, org_id: UUID, wanted: Filter, page: Page) -> Listed[Entry]:
        """The organization's entries, the newest first. Two statements: how many there are, and those of the page."""
        ...


class Mails(Protocol):
    """The queue of mails. Tokens in it are sealed."""

    async def queue(self, mail: Mail) -> None:
        """Also wakes the mailers of all processes, when the transaction commits."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, limit: int) -> list[Mail]:
        """Due mails, oldest first, that nobody else holds; they fall due again at `lease_until`.

        A token whose seal is broken counts as not made yet, so that one bad row does not hold up all others.
        """
        ...

    async def keep_token(self, mail: Mail, token: str, now: datetime) -> bool:
        """Keep the token for further attempts. False, and nothing kept, when the mail has been claimed again since."""
        ...

    async def token_mails_since(self, address: Email, kinds: Collection[MailKind], since: datetime) -> int:
        """How many mails of these kinds to this address have had their token prepared since then."""
        ...

    async def lock_recipient(self, address: Email) -> None:
        """Make others who would count what this address gets wait; for mails to whom there may be no account to lock."""
        ...

    async def finish(self, mail: Mail, outcome: Outcome, now: datetime, *, reason: str | None = None) -> None:
        """The mail is done with; its token is forgotten.

        Without effect when it has been claimed again since, unless it was sent: that is true whoever holds it now.
        """
        ...

    async def postpone(self, mail: Mail, due_at: datetime, reason: str) -> None:
        """An attempt failed. Without effect when the mail has been claimed again since: its lease ended, and it is another's now."""
        ...


class SigningKeysRead(Protocol):
    async def live(self, now: datetime) -> list[SigningKey]:
        """Keys that are believed now, newest first."""
        ...


class SigningKeys(SigningKeysRead, Protocol):
    async def lock(self) -> None:
        """Make others who would rotate wait."""
        ...

    async def has_active(self) -> bool: ...

    async def add(self, key: SigningKey) -> None:
        """Also tells all processes, when the transaction commits."""
        ...

    async def retire_all(self, retires_at: datetime) -> None: ...


class PlatformRead(Protocol):
    async def figures(self) -> Figures: ...

    async def due_jobs(self, now: datetime) -> int:
        """How many pieces of background work are due."""
        ...


class Leases(Protocol):
    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        """Take or extend the lease on work that one process at a time may do; false while another holder has it."""
        ...


class Housekeeping(Protocol):
    async def sweep(self, what: Sweep, before: datetime, limit: int) -> int:
        """Remove at most `limit` rows that were past their use at `before`; how many it were. What is in use now is left alone.

        Records of a deleted organization are past their use at once, its tombstone when it is older than `before` and nothing is left.
        Accounts take two statements: one locks them, and another judges again what is locked.
        """
        ...


class Sealed(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, kind: SealedKind, after: str, limit: int) -> tuple[int, str | None]:
        """Seal under the active key what is not, in at most `limit` rows after the one named `after` ("" is before the first).

        How many it were, and the name of the last row, or None if there are no more. One statement for each of them.
        """
        ...


class Rates(Protocol):
    """Token buckets per client, shared by all processes (organizations.md section 8)."""

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket if all have one; else take none and return how many seconds until they do. 0 is yes."""
        ...


class Guesses(Protocol):
    """Counters of wrong guesses (core/guesses.py)."""

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        """Count one guess; or, when it must wait, count nothing and return until when. Atomic."""
        ...

    async def clear(self, secret: Secret, subject: bytes) -> None: ...


class Reading(Protocol):
    """Questions that change nothing, each its own snapshot."""

    @property
    def tiers(self) -> TiersRead: ...
    @property
    def organizations(self) -> OrganizationsRead: ...
    @property
    def members(self) -> MembersRead: ...
    @property
    def invitations(self) -> InvitationsRead: ...
    @property
    def audit(self) -> AuditRead: ...

    @property
    def accounts(self) -> AccountsRead: ...
    @property
    def one_time_tokens(self) -> OneTimeTokensRead: ...
    @property
    def sessions(self) -> SessionsRead: ...
    @property
    def signing_keys(self) -> SigningKeysRead: ...
    @property
    def platform(self) -> PlatformRead: ...


class Transaction(Protocol):
    """Questions and changes that become true together."""

    @property
    def tiers(self) -> Tiers: ...
    @property
    def organizations(self) -> Organizations: ...
    @property
    def members(self) -> Members: ...
    @property
    def invitations(self) -> Invitations: ...

    @property
    def accounts(self) -> Accounts: ...
    @property
    def one_time_tokens(self) -> OneTimeTokens: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def mails(self) -> Mails: ...
    @property
    def signing_keys(self) -> SigningKeys: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def housekeeping(self) -> Housekeeping: ...
    @property
    def sealed(self) -> Sealed: ...

    def record(self, event: Event) -> None:
        """Have the event's row, and its audit entry if it has one, written with the caller's name, address and agent.

        All of a transaction's are written together when its block ends, in this order, so `of_person` means the confirmed memberships as
        they are then. Last, because the totals of the log are what transactions of one organization may have to wait for.
        """
        ...


class Rotation(Protocol):
    async def rotate(self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime) -> Refreshed | None:
        """Replace a refresh token, if it is the current one of a live session whose person and organization are in good standing.

        The session then lives until `expires_at`, but never past its absolute end. Exactly one caller wins.
        """
        ...


class Counting(Protocol):
    """Statements that are each a transaction of their own: because they must survive the refusal they lead to, or are all there is."""

    @property
    def rates(self) -> Rates: ...
    @property
    def sessions(self) -> Rotation: ...
    @property
    def guesses(self) -> Guesses: ...
    @property
    def logins(self) -> FailedLogins: ...
    @property
    def members(self) -> Confirmations: ...


class Storage(Protocol):
    """PostgreSQL, in tests too."""

    def transaction(self, by: Caller) -> AbstractAsyncContextManager[Transaction]: ...
    def reading(self) -> AbstractAsyncContextManager[Reading]: ...
    def counting(self) -> AbstractAsyncContextManager[Counting]: ...

    async def ping(self) -> None:
        """One trivial round trip. Raises StorageDown."""
        ...
