"""Privacy: what is kept about a person, all of it or one organization's part; and making a person unknown (identity.md sections 2.8 and
4.7; decisions, points 53, 84 and 143 to 148; security.md R-5 and section 20)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from core.accounts import events as accounts_events
from core.accounts import platform
from core.accounts.accounts_rules import EmailTaken
from core.accounts.platform_rules import AccountNotFound
from core.kernel.errors import Limited, SessionEnded, refuse
from core.kernel.principals import NotForApplications
from core.kernel.values import Batches
from core.maintenance import log_redaction, log_redaction_rules
from core.tenancy import events as tenancy_events
from core.tenancy.invitations_rules import InvitationStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.principals import Person
    from ports import Ports
    from ports.storage.privacy import PrivacyRead
from core.privacy_rules import (
    BATCH,
    LOST_RACES,
    NO_ADDRESS,
    NO_AGENT,
    AnonymizationNotAllowed,
    Belonging,
    Export,
    ExportNotAllowed,
    PlatformOwnerStays,
    T,
    placeholder_at,
)


async def export(ports: Ports, caller: Person, user_id: UUID) -> Export:
    """What is kept about the person: everything for themself and platform owners, and else what belongs to the organizations that the
    caller owns and the person takes part in; by an application, what belongs to its organization (decisions, points 53 and 145;
    security.md Y-1).

    A part has memberships, logins and identities; second factors and passkeys are the account's, and so in no part.
    Raises NotForApplications, ExportNotAllowed, PersonNotFound; only platform owners are told that there is no such person (B-5).
    """
    async with ports.storage.reading() as read:
        within = await _within(read.privacy, caller, user_id)
        account = await read.accounts.by_id(user_id) or refuse(AccountNotFound if caller.is_platform_owner else ExportNotAllowed)
        count = await read.privacy.count_logins(user_id, within)

    def batches(question: Callable[[PrivacyRead, T | None, int], Awaitable[Sequence[T]]], *, limit: int | None = None) -> Batches[T]:
        async def read_on(last: T | None, wanted: int) -> Sequence[T]:
            async with ports.storage.reading() as read:
                return await question(read.privacy, last, wanted)

        return Batches(read_on, limit, size=BATCH)

    of_the_account = None if within is None else 0
    return Export(
        user_id=account.id,
        email=account.email,
        created_at=account.created_at,
        memberships=batches(lambda read, last, wanted: read.memberships(user_id, within, last, wanted)),
        login_events_count=count,
        login_events=batches(lambda read, last, wanted: read.logins(user_id, within, last, wanted), limit=ports.policy.export_login_events),
        oauth_identities=batches(lambda read, last, wanted: read.identities(user_id, within, last, wanted)),
        mfa_events=batches(lambda read, last, wanted: read.mfa_events(user_id, last, wanted), limit=of_the_account),
        passkeys=batches(lambda read, last, wanted: read.passkeys(user_id, last, wanted), limit=of_the_account),
    )


async def _within(read: PrivacyRead, caller: Person, user_id: UUID) -> Collection[UUID] | None:
    """The organizations to which an export is limited, None for everything. Raises NotForApplications, ExportNotAllowed."""
    if caller.service is not None:
        if caller.user_id != user_id:
            raise NotForApplications
        return [caller.service.org_id]
    if caller.user_id == user_id or caller.is_platform_owner:
        return None
    belongings = await read.belongings(user_id, caller.user_id)
    return [belonging.org_id for belonging in belongings if belonging.gives_a_say] or refuse(ExportNotAllowed)


async def forget(ports: Ports, caller: Person, user_id: UUID) -> None:
    """Make a person unknown for good (identity.md section 4.7): nothing stays that says who it was or lets anybody in, while the id, times,
    memberships, counts and entries of logs do. Somebody who is unknown already stays as they are (decisions, point 147), and what is left
    of their logs is blanked before this returns.

    For platform owners, and for those who own every organization that the person belongs to, one at least, if the person takes part in each
    (security.md R-5, Y-2), which may be oneself.
    Raises AnonymizationNotAllowed, PlatformOwnerStays, PersonNotFound, and Limited where others kept being faster; only platform owners are
    told that there is no such person (B-5). And SessionEnded, where the caller's session has ended meanwhile.
    """
    async with ports.storage.reading() as read:  # so that nobody locks what they have no say about; the answer that counts is the one below
        account = await read.accounts.by_id(user_id)
        _judge(account, await read.privacy.belongings(user_id, caller.user_id), by_platform_owner=caller.is_platform_owner)
    for attempt in range(LOST_RACES):
        try:
            if await _forget(ports, caller, user_id, attempt):
                break
        except EmailTaken:  # somebody else became unknown in the very same microsecond (decisions, point 148)
            continue
    else:
        raise Limited(1)
    await log_redaction.finish(ports, user_id)


async def _forget(ports: Ports, caller: Person, user_id: UUID, attempt: int) -> bool:
    """False where the person has come to have to do with another organization meanwhile, and nothing was done. Raises EmailTaken."""
    now = ports.clock.now()
    # What is recorded of somebody who does it themself must not say again where they are.
    oneself = caller.user_id == user_id
    known_as = replace(caller, address=NO_ADDRESS, agent=NO_AGENT) if oneself else caller
    async with ports.storage.transaction(by=known_as, in_session=not oneself) as tx:
        locked = await tx.privacy.concerned(user_id)
        await tx.privacy.lock_organizations(locked)
        await tx.privacy.lock_memberships(user_id)
        if caller.is_platform_owner:
            account, by_platform_owner = await platform.lock_target_account(tx, caller, user_id)
        else:
            account, by_platform_owner = await tx.accounts.lock(user_id), False
        await tx.sessions.load_session_context(caller.session_id, caller.user_id, None, now) or refuse(SessionEnded)
        # Whoever adds a member or changes the address holds the account, and whoever changes the owner or answers an invitation the
        # organization: from here on this is what it is.
        if not set(await tx.privacy.concerned(user_id)) <= set(locked):
            return False
        belongings = await tx.privacy.belongings(user_id, caller.user_id)
        account = _judge(account, belongings, by_platform_owner=by_platform_owner)
        if account.anonymized_at is not None:
            return True
        placeholder = placeholder_at(now + attempt * timedelta(microseconds=1))
        await tx.privacy.replace_address(account.id, placeholder, now)
        await tx.privacy.remove_ways_in(account.id)
        await tx.sessions.remove(account.id)
        await tx.privacy.blank_newest(account.id, log_redaction_rules.FIRST)
        await tx.privacy.blank_impersonations(account.id, now)
        await tx.privacy.blank_arrivals(account.id, account.email)
        await tx.privacy.remove_mails(account.id, account.email)
        await tx.privacy.forget_deliveries(account.id)
        for belonging in belongings:
            tx.record(accounts_events.anonymized(belonging.org_id, account.id))
        for invitation in await tx.privacy.end_invitations(account.id, account.email, placeholder, locked, now):
            # Who did it is nothing to those who merely invited the person.
            ended = (
                tenancy_events.invitation_expired if invitation.status is InvitationStatus.EXPIRED else tenancy_events.invitation_revoked
            )
            tx.record(replace(ended(invitation), by_time=True))
        await tx.privacy.forget_descriptions(account.id)
        await tx.privacy.remove_former_addresses(account.id)
        await tx.privacy.log(account.id, known_as, now)
    return True


def _judge(account: Account | None, belongings: Sequence[Belonging], *, by_platform_owner: bool) -> Account:
    """The account, if somebody who has these organizations with it may anonymize it.

    Raises AnonymizationNotAllowed, PersonNotFound, PlatformOwnerStays.
    """
    if not by_platform_owner and not (belongings and all(belonging.gives_a_say for belonging in belongings)):
        raise AnonymizationNotAllowed
    if account is None:
        raise AccountNotFound
    if account.is_platform_owner:
        raise PlatformOwnerStays
    return account
