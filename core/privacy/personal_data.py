"""Privacy: export a user's data, and anonymize a user (security R-5, Y-1, Y-2)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from core.accounts import events as accounts_events
from core.accounts import platform, security_notices
from core.accounts.factors import own_proofs
from core.accounts.model import accounts, email_queue
from core.accounts.model.platform import AccountNotFound
from core.accounts.model.profiles import NO_PROFILE
from core.accounts.model.security_notices import SecurityNotice
from core.authentication import admissions
from core.kernel import errors, values
from core.kernel.access import NotForApplications
from core.kernel.callers import Person
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.privacy.model import personal_data
from core.tenancy import events as tenancy_events
from core.tenancy import grants
from core.tenancy.grants import let_programs_go_on
from core.tenancy.model.invitations import InvitationStatus
from ports import Ports, storage
from ports.storage.privacy import PrivacyRead


async def export(ports: Ports, caller: Person, user_id: UUID) -> personal_data.PersonalDataExport:
    """Export a user's stored data (security Y-1).

    The user and platform owners get all data. An organization's owner gets the part about a confirmed member that belongs to their
    organizations. An application gets the part about its user that belongs to its organization. A part contains memberships, logins,
    identities, consents, blocks and roles at applications, and groups. The rest belongs to the account: profile, second factors, passkeys,
    address changes, emails about security, service accounts and personal access tokens. The privacy log gets an entry.

    Raises: NotForApplications, ExportNotAllowed; AccountNotFound for platform owners only, because other callers must
    not learn which accounts exist (security B-5); the errors of `admissions.require` for them; PasskeyNeeded for the
    own data.
    """
    await _require_policy_of_platform(ports, caller, user_id)
    async with ports.storage.reading() as read:
        within = await _organizations_to_export(read.privacy, caller, user_id)
        account = await read.accounts.by_id(user_id) or errors.refuse(
            AccountNotFound if caller.is_platform_owner else personal_data.ExportNotAllowed
        )
        if user_id == caller.user_id:
            await own_proofs.require_strongest_proof(ports, read, caller, account, ports.clock.now())
        login_count = await read.personal_data.count_logins(user_id, within)
        picture = await read.images.of_user(user_id) if within is None else None
    async with ports.storage.transaction(by=caller) as tx:
        await tx.privacy.log(personal_data.EXPORTED, user_id, caller, ports.clock.now())

    def batches(list_: personal_data.ExportedList) -> values.Batches[personal_data.ExportedItem]:
        async def load_next(last: personal_data.ExportedItem | None, count: int) -> Sequence[personal_data.ExportedItem]:
            async with ports.storage.reading() as read:
                return await read.personal_data.items(list_, user_id, within, last, count)

        limit = ports.policy.export_login_events if list_ is personal_data.ExportedList.LOGIN_EVENTS else None
        is_in_part = within is None or list_ in personal_data.OF_ORGANIZATIONS
        return values.Batches(load_next, limit if is_in_part else 0, size=personal_data.BATCH)

    return personal_data.PersonalDataExport(
        user_id=account.id,
        email=account.email,
        created_at=account.created_at,
        profile=account.profile if within is None else NO_PROFILE,
        picture_file=picture,
        login_events_count=login_count,
        lists={list_: batches(list_) for list_ in personal_data.ExportedList},
    )


async def _require_policy_of_platform(ports: Ports, caller: Person, user_id: UUID) -> None:
    """Check that a platform owner who acts on another user meets the platform's policy."""
    if caller.is_platform_owner and caller.service is None and caller.user_id != user_id:
        await admissions.require_on_platform(ports, caller)


async def _organizations_to_export(read: PrivacyRead, caller: Person, user_id: UUID) -> Collection[UUID] | None:
    """Return the organizations that an export is limited to, or None for everything."""
    if caller.service is not None:
        if caller.user_id != user_id:
            raise NotForApplications
        return [caller.service.org_id]
    if caller.user_id == user_id or caller.is_platform_owner:
        return None
    memberships = await read.list_membership_controls(user_id, caller.user_id)
    return [membership.org_id for membership in memberships if membership.gives_control] or errors.refuse(personal_data.ExportNotAllowed)


async def anonymize(ports: Ports, caller: Person, user_id: UUID) -> datetime | None:
    """Anonymize a user permanently.

    Anonymizing removes everything that identifies the user or lets them sign in. The id, times, memberships, counts and
    log entries stay. An account that is already anonymized is not changed. The logs are redacted before this returns.

    For callers who are not platform owners, the account is only closed while a link in an email can undo
    a change to it. If another person deletes an account with a verified address that none of their
    organizations created, it is always closed first, and gets such a link. Return when a closed account
    is erased (UTC), otherwise None.

    Platform owners may do this. Other callers may do this if they own all the user's organizations, there is at least
    one, and all these memberships are confirmed. The same rule applies to users who anonymize themselves. If callers
    anonymize another user, no other organization may have the user as an end user or a subscriber (security R-5, Y-2).

    Raises: AnonymizationNotAllowed, CannotAnonymizePlatformOwner, SessionEnded; Limited after too many lost races;
    AccountNotFound for platform owners only, because other callers must not learn which accounts exist (security B-5);
    the errors of `admissions.require` for them.
    """
    await _require_policy_of_platform(ports, caller, user_id)
    # Check before any lock, so that callers cannot lock rows about users that they have no control
    # over. The check is repeated under the locks, because the facts can change until then.
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(user_id)
        memberships = await read.privacy.list_membership_controls(user_id, caller.user_id)
        is_allowed = caller.is_platform_owner or await _controls(read.privacy, caller, user_id, memberships)
    _check(account, is_allowed=is_allowed)
    return await _anonymize_with_retries(ports, caller, user_id, Cause.REQUEST)


async def delete_own_account(ports: Ports, caller: Person) -> datetime | None:
    """Delete the caller's own account: anonymize it, and confirm that by email.

    The deletion has the same effects as `anonymize`. All members and users without an organization may do this. Owners
    must first transfer or delete their organizations. While the link in an email about account security can undo a
    change, the account is only closed. Return when the account is erased (UTC), or None if it is erased now.

    Raises: PasskeyNeeded; Limited after too many lost races.
    """
    await check_own_deletion(ports, caller)
    return await _anonymize_with_retries(ports, caller, caller.user_id, Cause.OWN_DELETION)


async def erase_due(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Erase the accounts that were deleted, and that no undo link opens again. Return how many accounts were erased.

    `holder` is not needed: an account is erased once, under its lock.
    """
    count = 0
    while True:
        async with ports.storage.reading() as read:
            account = await read.accounts.next_to_erase(ports.clock.now())
        if account is None:
            return {"accounts": count} if count else {}
        person = Person(user_id=account.id, email=account.email, session_id=holder)
        await _anonymize_with_retries(ports, person, account.id, Cause.ERASURE)
        count += 1


async def check_own_deletion(ports: Ports, caller: Person) -> None:
    """Check whether the caller may delete their account now. Raises: PlatformOwnerCannotDelete, OwnerCannotDelete, SessionEnded."""
    async with ports.storage.reading() as read:
        await _check_own_deletion(read, await read.accounts.by_id(caller.user_id))


async def _check_own_deletion(read: storage.Reading | storage.Transaction, account: accounts.Account | None) -> accounts.Account:
    if account is None or account.anonymized_at is not None:
        raise errors.SessionEnded
    if account.is_platform_owner:
        raise personal_data.PlatformOwnerCannotDelete
    if owned := await read.privacy.list_owned_organizations(account.id):
        raise personal_data.OwnerCannotDelete(owned)
    return account


class Cause(Enum):
    """Why an account is anonymized."""

    REQUEST = auto()  # by a platform owner, an owner of organizations, or the user
    OWN_DELETION = auto()
    ERASURE = auto()  # for an account that was deleted before


@dataclass(frozen=True, slots=True)
class _Done:
    """What an anonymization did. `erase_at` (UTC) is set if the account was only closed."""

    erase_at: datetime | None = None


async def _anonymize_with_retries(ports: Ports, caller: Person, user_id: UUID, cause: Cause) -> datetime | None:
    for attempt in range(personal_data.MAX_LOST_RACES):
        try:
            done = await _anonymize(ports, caller, user_id, attempt, cause)
        except accounts.EmailTaken:  # another account was anonymized in the same microsecond
            continue
        if done is not None:
            break
    else:
        raise errors.Limited(1)
    if done.erase_at is None:
        await housekeeping.finish_redaction(ports, user_id)
    return done.erase_at


async def _anonymize(ports: Ports, caller: Person, user_id: UUID, attempt: int, cause: Cause) -> _Done | None:
    """Anonymize the account in one transaction, or close it if its user may want to undo the deletion.

    Return None, and change nothing, if the user joined or was invited to another organization after the locks were chosen.

    Raises: EmailTaken, SessionEnded; the errors of `_check`, or for an own deletion the errors of `check_own_deletion`.
    """
    now = ports.clock.now()
    placeholder = personal_data.placeholder_at(now + attempt * timedelta(microseconds=1))
    # If users anonymize themselves, the records about it must not contain their address again.
    is_self = caller.user_id == user_id
    recorded_caller = (
        replace(caller, address=personal_data.NO_ADDRESS, agent=personal_data.NO_AGENT, email=placeholder) if is_self else caller
    )
    async with ports.storage.transaction(by=recorded_caller, in_session=not is_self) as tx:
        org_ids, account, by_platform_owner = await _lock(tx, caller, user_id, cause)
        if cause is not Cause.ERASURE:
            await tx.session_contexts.load(caller.session_id, caller.user_id, None, now) or errors.refuse(errors.SessionEnded)
        # To add a member or to change an email address, a transaction needs the lock on the
        # account. To change an owner or to answer an invitation, a transaction needs the lock on
        # the organization. Facts that are read from here on therefore cannot change.
        if not set(await tx.privacy.list_involved_organizations(user_id)) <= set(org_ids):
            return None
        memberships = await tx.privacy.list_membership_controls(user_id, caller.user_id)
        if cause is Cause.REQUEST:
            account = _check(account, is_allowed=by_platform_owner or await _controls(tx.privacy, caller, user_id, memberships))
        elif cause is Cause.OWN_DELETION:
            account = await _check_own_deletion(tx, account)
        if account is None or await _is_settled(tx, account, cause, now):
            return _Done()
        await _leave_programs(ports, tx, caller, account, cause, now)
        if cause is not Cause.ERASURE and not by_platform_owner:
            notices = await tx.security_notices.live(account.id, now)
            if notices or (not is_self and _may_be_stolen(account, memberships)):
                return _Done(await _close(tx, caller, account, memberships, notices, now))
        await _erase(tx, account, memberships, placeholder, org_ids, now)
        await tx.privacy.log(personal_data.ANONYMIZED, account.id, recorded_caller, now)
        if cause is Cause.OWN_DELETION and account.email_verified_at is not None:
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.ACCOUNT_DELETED, account.email, now))
    return _Done()


async def _leave_programs(
    ports: Ports, tx: storage.Transaction, caller: Person, account: accounts.Account, cause: Cause, now: datetime
) -> None:
    """Let the service accounts go on if users delete themselves with their strongest factor. Otherwise, end accounts that go on."""
    if caller.user_id != account.id:
        await tx.service_accounts.end_going_on(account.id, None, now)
    elif cause is not Cause.ERASURE:
        await own_proofs.require_strongest_proof(ports, tx, caller, account, now)
        await let_programs_go_on(tx, account.id, account.email, None, now)


async def _is_settled(tx: storage.Transaction, account: accounts.Account, cause: Cause, now: datetime) -> bool:
    """Return whether another process was faster, or the user has opened the closed account again."""
    if account.anonymized_at is not None:
        return True
    return cause is Cause.ERASURE and not await tx.accounts.is_due_for_erasure(account.id, now)


async def _lock(
    tx: storage.Transaction, caller: Person, user_id: UUID, cause: Cause
) -> tuple[Sequence[UUID], accounts.Account | None, bool]:
    """Lock a user's organizations by id, the memberships by organization, then the account.

    Return these organizations, the account, and whether the caller is still a platform owner who may anonymize it.
    """
    org_ids = await tx.privacy.list_involved_organizations(user_id)
    await tx.privacy.lock_organizations(org_ids)
    await tx.privacy.lock_memberships(user_id)
    if caller.is_platform_owner and cause is Cause.REQUEST:
        return org_ids, *await platform.lock_target_account(tx, caller, user_id)
    return org_ids, await tx.accounts.lock(user_id), False


async def _erase(
    tx: storage.Transaction,
    account: accounts.Account,
    memberships: Sequence[personal_data.MembershipControl],
    placeholder: values.Email,
    org_ids: Collection[UUID],
    now: datetime,
) -> None:
    """Remove a locked account's personal data. `org_ids` are the organizations that it belongs to or that invited it."""
    await tx.privacy.replace_email(account.id, placeholder, now)
    await tx.privacy.remove_sign_in_methods(account.id)
    await tx.sessions.remove(account.id, now)
    await tx.privacy.redact_newest(account.id, housekeeping_model.FIRST_REDACTION)
    await tx.privacy.redact_impersonations(account.id, now)
    await tx.privacy.redact_joins(account.id, account.email)
    await tx.privacy.remove_emails(account.id, account.email)
    await tx.privacy.redact_deliveries(account.id)
    for membership in memberships:
        tx.record(accounts_events.anonymized(membership.org_id, account.id))
    if not memberships:
        tx.record(accounts_events.anonymized(None, account.id))
    for invitation in await tx.privacy.end_invitations(account.id, account.email, placeholder, org_ids, now):
        is_expired = invitation.status is InvitationStatus.EXPIRED
        ended = tenancy_events.invitation_expired if is_expired else tenancy_events.invitation_revoked
        # Recorded without the caller: the organizations that only invited the user must not
        # learn who anonymized them.
        tx.record(replace(ended(invitation), by_time=True))
    await _end_secrets(tx, account, memberships, now)
    await tx.privacy.remove_directory_data(account.id)
    await tx.privacy.remove_former_emails(account.id)


async def _end_secrets(
    tx: storage.Transaction, account: accounts.Account, memberships: Sequence[personal_data.MembershipControl], now: datetime
) -> None:
    """End the account's credentials, and the credentials of its stopped service accounts."""
    await security_notices.end_all_credentials(tx, account.id, now)
    for membership in memberships:
        await grants.void_stopped_accounts(tx, membership.org_id, account.id, now)


async def _close(
    tx: storage.Transaction,
    caller: Person,
    account: accounts.Account,
    memberships: Sequence[personal_data.MembershipControl],
    notices: Sequence[SecurityNotice],
    now: datetime,
) -> datetime:
    """Close a locked account, and return when it is erased.

    A thief may have changed the account, so the links in the emails about these changes open it again.
    """
    tx.acts_as(caller)  # the entries name the device that deleted the account until the account is erased
    if account.closed_at is not None:
        return max((notice.undo_until for notice in notices), default=now)
    is_self = caller.user_id == account.id
    erase_at = await security_notices.notify_of_deletion(tx, account, notices, caller.session_id if is_self else None, now)
    await tx.accounts.close_until(account.id, erase_at, now)
    await tx.sessions.end_all(account.id, now)
    await tx.flows.forget_user(account.id)
    await tx.devices.distrust(account.id, now)
    for purpose in email_queue.TokenPurpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await _end_secrets(tx, account, memberships, now)
    tx.record(accounts_events.account_closed(account.id, by_user=is_self))
    return erase_at


def _may_be_stolen(account: accounts.Account, memberships: Sequence[personal_data.MembershipControl]) -> bool:
    """Return whether the user has an address of their own, and no organization in `memberships` created the account.

    A session thief could accept an invitation from their own organization, and delete the account as its owner.
    """
    return account.email_verified_at is not None and account.origin_org_id not in {membership.org_id for membership in memberships}


async def _controls(read: PrivacyRead, caller: Person, user_id: UUID, memberships: Sequence[personal_data.MembershipControl]) -> bool:
    """Return whether a caller without a platform owner's rights may anonymize the user (security Y-2)."""
    if not memberships or not all(membership.gives_control for membership in memberships):
        return False
    return caller.user_id == user_id or not await read.is_used_elsewhere(user_id, caller.user_id)


def _check(account: accounts.Account | None, *, is_allowed: bool) -> accounts.Account:
    """Return the account if the caller may anonymize it."""
    if not is_allowed:
        raise personal_data.AnonymizationNotAllowed
    if account is None:
        raise AccountNotFound
    if account.is_platform_owner:
        raise personal_data.CannotAnonymizePlatformOwner
    return account


async def list_mfa_log(ports: Ports, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.MfaLogEntry]:
    """Return a page with the newest MAX_LISTED entries in a user's second-factor log, newest first."""
    async with ports.storage.reading() as read:
        await read.accounts.by_id(user_id) or errors.refuse(AccountNotFound)
        return await read.account_logs.mfa(user_id, page)


async def list_privacy_log(ports: Ports, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.PrivacyLogEntry]:
    """Return a page with the newest MAX_LISTED entries about this user in the privacy log, newest first."""
    async with ports.storage.reading() as read:
        await read.accounts.by_id(user_id) or errors.refuse(AccountNotFound)
        return await read.account_logs.privacy(user_id, page)
