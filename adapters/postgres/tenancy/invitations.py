"""Invitations."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import SERVICE_ACCOUNT_SUMMARY
from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.kernel.roles import role_label
from core.accounts.model.accounts import DELETED_ACCOUNT, AccountSummary
from core.kernel.roles import RoleName
from core.kernel.values import Email, Page, PageResult
from core.tenancy.model.invitations import Invitation, InvitationAlreadySent, InvitationStatus, ListedInvitation, ReceivedInvitation
from ports.signals import Signal

ROLE_LABEL: Final = role_label("i")
INVITATION: Final = Record(Invitation, "i", email=Email, status=InvitationStatus, role_label=ROLE_LABEL)
STORED_INVITATION: Final = Record(Invitation, "i", email=Email, status=InvitationStatus, role_label=None)
STATUS_NOW: Final = "case when i.status = 'pending' and i.expires_at <= %(now)s then 'expired' else i.status end"
INVITATION_NOW: Final = Record(Invitation, "i", email=Email, status=Column(sql=STATUS_NOW, read=InvitationStatus), role_label=ROLE_LABEL)
# COLUMNS, but a pending invitation that has passed its expiry reads as expired, even before the
# sweeper marks it.
INSERT: Final = STORED_INVITATION.insert("invitations")
SELECT: Final = f"select {INVITATION.columns} from invitations i "
RECEIVED: Final = f"""
    select {INVITATION_NOW.columns}, o.slug, o.name, u.email
    from invitations i join organizations o on o.id = i.org_id left join users u on u.id = i.invited_by """
INVITER: Final = f"u.id, u.email, u.is_platform_owner, u.created_at, {SERVICE_ACCOUNT_SUMMARY}"
INVITER_JOINS: Final = """
    left join users u on u.id = i.invited_by left join service_accounts a on a.id = i.invited_by and a.org_id = i.org_id"""
# One of the invitation's two tokens.
HAS_TOKEN: Final = "(i.token_hash = %(token_hash)s or i.inviter_token_hash = %(token_hash)s)"  # noqa: S105
NEWEST_FIRST: Final = "order by i.created_at desc, i.id desc"
# Maps a current status to conditions on the stored rows. For every condition, an index returns the
# rows in the page's order.
STORED: Final[Mapping[InvitationStatus | None, Sequence[LiteralString]]] = {
    None: ("true",),
    InvitationStatus.PENDING: ("i.status = 'pending' and i.expires_at > %(now)s",),
    InvitationStatus.EXPIRED: ("i.status = 'expired'", "i.status = 'pending' and i.expires_at <= %(now)s"),
    InvitationStatus.ACCEPTED: ("i.status = 'accepted'",),
    InvitationStatus.REJECTED: ("i.status = 'rejected'",),
    InvitationStatus.CANCELLED: ("i.status = 'cancelled'",),
}


def to_received(row: Row) -> ReceivedInvitation:
    slug, name, inviter = row[INVITATION.width :]
    return ReceivedInvitation(INVITATION.read(row), slug, name, None if inviter is None else Email(inviter))


def to_listed_invitation(row: Row) -> ListedInvitation:
    user, service_account = row[INVITATION.width : INVITATION.width + 4], row[INVITATION.width + 4 :]
    inviter = user if user[0] is not None else service_account
    return ListedInvitation(INVITATION.read(row), DELETED_ACCOUNT if inviter[0] is None else AccountSummary(str(inviter[0]), *inviter[1:]))


class Invitations(Repository):
    """Implements `ports.storage.tenancy.organizations.Invitations`."""

    constraints: ClassVar = {"invitations_one_pending": InvitationAlreadySent}

    async def page(
        self,
        org_id: UUID,
        status: InvitationStatus | None,
        page: Page,
        now: datetime,
        *,
        search: str | None = None,
        role: RoleName | None = None,
    ) -> PageResult[ListedInvitation]:
        matching: LiteralString = "" if search is None else " and strpos(i.email, %(search)s) > 0"
        matching += "" if role is None else " and i.role = %(role)s"
        statement = _page([f"{condition}{matching}" for condition in STORED[status]])
        return await self._page(
            to_listed_invitation, statement, org_id=org_id, limit=page.limit, offset=page.offset, now=now, search=search, role=role
        )

    async def received_by(self, email: Email, now: datetime) -> list[ReceivedInvitation]:
        sql = f"{RECEIVED} where i.email = %(email)s and i.status = 'pending' and i.expires_at > %(now)s {NEWEST_FIRST}"
        return await self._all(to_received, sql, email=email, now=now)

    async def received_by_token(self, token_hash: bytes, now: datetime) -> ReceivedInvitation | None:
        return await self._one(to_received, RECEIVED + f"where {HAS_TOKEN}", token_hash=token_hash, now=now)

    async def add(self, invitation: Invitation) -> None:
        await self._run(INSERT, **STORED_INVITATION.values(invitation))
        self._signals.send(Signal.INVITATION_DUE, invitation.expires_at)

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> Invitation | None:
        return await self._one(
            INVITATION.read, SELECT + "where i.org_id = %(org_id)s and i.id = %(invitation_id)s", org_id=org_id, invitation_id=invitation_id
        )

    async def pending_of(self, org_id: UUID, invitation_ids: Collection[UUID]) -> list[Invitation]:
        sql = f"{SELECT} where i.org_id = %(org_id)s and i.id = any(%(ids)s) and i.status = 'pending' {NEWEST_FIRST}"
        return await self._all(INVITATION.read, sql, org_id=org_id, ids=list(invitation_ids))

    async def accepted_by(self, org_id: UUID, user_id: UUID) -> ListedInvitation | None:
        # Accepting ends the invitation and adds the membership at the same time.
        sql = f"""
            select {INVITATION.columns}, {INVITER}
            from memberships m
            join invitations i on i.org_id = m.org_id and i.status = 'accepted' and i.ended_at = m.created_at
                and i.email in (select m.email union all select c.old_email from email_changes c where c.user_id = m.user_id)
            {INVITER_JOINS}
            where m.org_id = %(org_id)s and m.user_id = %(user_id)s limit 1"""
        return await self._one(to_listed_invitation, sql, org_id=org_id, user_id=user_id)

    async def by_token(self, org_id: UUID, token_hash: bytes) -> Invitation | None:
        return await self._one(
            INVITATION.read, SELECT + f"where i.org_id = %(org_id)s and {HAS_TOKEN}", org_id=org_id, token_hash=token_hash
        )

    async def pending(self, org_id: UUID, email: Email) -> Invitation | None:
        return await self._one(
            INVITATION.read,
            SELECT + "where i.org_id = %(org_id)s and i.email = %(email)s and i.status = 'pending'",
            org_id=org_id,
            email=email,
        )

    async def end(self, org_id: UUID, invitation_id: UUID, status: InvitationStatus, now: datetime) -> bool:
        sql = """
                update invitations set status = %(status)s, ended_at = %(now)s
                where org_id = %(org_id)s and id = %(invitation_id)s and status = 'pending'"""
        return await self._run(sql, org_id=org_id, invitation_id=invitation_id, status=status, now=now) == 1

    async def cancel_from(self, org_id: UUID, invited_by: UUID, roles: Collection[RoleName], now: datetime) -> list[Invitation]:
        sql = f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s
            where i.org_id = %(org_id)s and i.invited_by = %(invited_by)s and i.status = 'pending' and i.role = any(%(roles)s)
              and i.expires_at > %(now)s
            returning {INVITATION.columns}"""
        return await self._all(INVITATION.read, sql, org_id=org_id, invited_by=invited_by, roles=list(roles), now=now)

    async def cancel_to(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[Invitation]:
        sql = f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s from users u
            where i.org_id = %(org_id)s and i.email = u.email and u.id = any(%(user_ids)s) and i.status = 'pending'
              and i.expires_at > %(now)s
            returning {INVITATION.columns}"""
        return await self._all(INVITATION.read, sql, org_id=org_id, user_ids=list(user_ids), now=now)

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        sql = "select created_at from invitations where org_id = %(org_id)s order by created_at desc, id desc limit 1 offset %(skipped)s"
        return await self._one(lambda row: row[0], sql, org_id=org_id, skipped=n - 1)

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        # Keep the common table expression: with a plain subquery the planner may update more rows
        # than the limit.
        sql = f"""
            with due as (
                select id from invitations where status = 'pending' and expires_at <= %(now)s
                order by expires_at limit %(limit)s for update skip locked)
            update invitations i set status = 'expired', ended_at = %(now)s from due where i.id = due.id
            returning {INVITATION.columns}"""
        return await self._all(INVITATION.read, sql, now=now, limit=limit)

    async def next_expiry(self) -> datetime | None:
        return await self._one(lambda row: row[0], "select min(expires_at) from invitations where status = 'pending'")


def _page(parts: Sequence[LiteralString]) -> LiteralString:
    """Return SQL for a page with the invitations that match any of these conditions.

    Every row starts with the count of matching invitations. The outer join returns a row even if the page is empty.
    """
    totals = " + ".join([f"(select count(*) from invitations i where i.org_id = %(org_id)s and {part})" for part in parts])
    newest = " union all ".join(
        [
            f"""
        (select i.* from invitations i where i.org_id = %(org_id)s and {part} {NEWEST_FIRST} limit %(offset)s::bigint + %(limit)s)"""
            for part in parts
        ]
    )
    return f"""
    with matching as ({newest}),
    page as (select * from matching i {NEWEST_FIRST} limit %(limit)s offset %(offset)s)
    select counted.total, {INVITATION_NOW.columns}, {INVITER}
    from (select {totals} as total) counted
    left join (page i {INVITER_JOINS}) on true
    {NEWEST_FIRST}"""
