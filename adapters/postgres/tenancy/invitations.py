"""Invitations."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import SERVICE_ACCOUNT_SUMMARY
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.roles import role_label
from core.accounts.model import accounts
from core.kernel import values
from core.kernel.roles import RoleName
from core.tenancy.model import invitations
from ports.signals import Signal

ROLE_LABEL: Final = role_label("i")
INVITATION: Final = records.Record(
    invitations.Invitation, "i", email=values.Email, status=invitations.InvitationStatus, role_label=ROLE_LABEL
)
STORED_INVITATION: Final = records.Record(
    invitations.Invitation, "i", email=values.Email, status=invitations.InvitationStatus, role_label=None
)
STATUS_NOW: Final = "case when i.status = 'pending' and i.expires_at <= %(now)s then 'expired' else i.status end"
INVITATION_NOW: Final = records.Record(
    invitations.Invitation,
    "i",
    email=values.Email,
    status=records.Column(sql=STATUS_NOW, read=invitations.InvitationStatus),
    role_label=ROLE_LABEL,
)
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
STORED: Final[Mapping[invitations.InvitationStatus | None, Sequence[LiteralString]]] = {
    None: ("true",),
    invitations.InvitationStatus.PENDING: ("i.status = 'pending' and i.expires_at > %(now)s",),
    invitations.InvitationStatus.EXPIRED: ("i.status = 'expired'", "i.status = 'pending' and i.expires_at <= %(now)s"),
    invitations.InvitationStatus.ACCEPTED: ("i.status = 'accepted'",),
    invitations.InvitationStatus.REJECTED: ("i.status = 'rejected'",),
    invitations.InvitationStatus.CANCELLED: ("i.status = 'cancelled'",),
}


def to_received(row: statements.Row) -> invitations.ReceivedInvitation:
    slug, name, inviter = row[INVITATION.width :]
    return invitations.ReceivedInvitation(INVITATION.read(row), slug, name, None if inviter is None else values.Email(inviter))


def to_listed_invitation(row: statements.Row) -> invitations.ListedInvitation:
    user, service_account = row[INVITATION.width : INVITATION.width + 4], row[INVITATION.width + 4 :]
    inviter = user if user[0] is not None else service_account
    return invitations.ListedInvitation(
        INVITATION.read(row), accounts.DELETED_ACCOUNT if inviter[0] is None else accounts.AccountSummary(str(inviter[0]), *inviter[1:])
    )


class Invitations(statements.Repository):
    """Implements `ports.storage.tenancy.organizations.Invitations`."""

    constraints: ClassVar = {"invitations_one_pending": invitations.InvitationAlreadySent}

    async def page(
        self,
        org_id: UUID,
        status: invitations.InvitationStatus | None,
        page: values.Page,
        now: datetime,
        *,
        search: str | None = None,
        role: RoleName | None = None,
    ) -> values.PageResult[invitations.ListedInvitation]:
        matching: LiteralString = "" if search is None else " and strpos(i.email, %(search)s) > 0"
        matching += "" if role is None else " and i.role = %(role)s"
        statement = _page([f"{condition}{matching}" for condition in STORED[status]])
        return await self._page(
            to_listed_invitation, statement, org_id=org_id, limit=page.limit, offset=page.offset, now=now, search=search, role=role
        )

    async def received_by(self, email: values.Email, now: datetime) -> list[invitations.ReceivedInvitation]:
        sql = f"{RECEIVED} where i.email = %(email)s and i.status = 'pending' and i.expires_at > %(now)s {NEWEST_FIRST}"
        return await self._all(to_received, sql, email=email, now=now)

    async def received_by_token(self, token_hash: bytes, now: datetime) -> invitations.ReceivedInvitation | None:
        return await self._one(to_received, RECEIVED + f"where {HAS_TOKEN}", token_hash=token_hash, now=now)

    async def add(self, invitation: invitations.Invitation) -> None:
        await self._run(INSERT, **STORED_INVITATION.values(invitation))
        self._signals.send(Signal.INVITATION_DUE, invitation.expires_at)

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> invitations.Invitation | None:
        return await self._one(
            INVITATION.read, SELECT + "where i.org_id = %(org_id)s and i.id = %(invitation_id)s", org_id=org_id, invitation_id=invitation_id
        )

    async def pending_of(self, org_id: UUID, invitation_ids: Collection[UUID]) -> list[invitations.Invitation]:
        sql = f"{SELECT} where i.org_id = %(org_id)s and i.id = any(%(ids)s) and i.status = 'pending' {NEWEST_FIRST}"
        return await self._all(INVITATION.read, sql, org_id=org_id, ids=list(invitation_ids))

    async def accepted_by(self, org_id: UUID, user_id: UUID) -> invitations.ListedInvitation | None:
        # Accepting ends the invitation and adds the membership at the same time.
        sql = f"""
            select {INVITATION.columns}, {INVITER}
            from memberships m
            join invitations i on i.org_id = m.org_id and i.status = 'accepted' and i.ended_at = m.created_at
                and i.email in (select m.email union all select c.old_email from email_changes c where c.user_id = m.user_id)
            {INVITER_JOINS}
            where m.org_id = %(org_id)s and m.user_id = %(user_id)s limit 1"""
        return await self._one(to_listed_invitation, sql, org_id=org_id, user_id=user_id)

    async def by_token(self, org_id: UUID, token_hash: bytes) -> invitations.Invitation | None:
        return await self._one(
            INVITATION.read, SELECT + f"where i.org_id = %(org_id)s and {HAS_TOKEN}", org_id=org_id, token_hash=token_hash
        )

    async def pending(self, org_id: UUID, email: values.Email) -> invitations.Invitation | None:
        return await self._one(
            INVITATION.read,
            SELECT + "where i.org_id = %(org_id)s and i.email = %(email)s and i.status = 'pending'",
            org_id=org_id,
            email=email,
        )

    async def end(self, org_id: UUID, invitation_id: UUID, status: invitations.InvitationStatus, now: datetime) -> bool:
        sql = """
                update invitations set status = %(status)s, ended_at = %(now)s
                where org_id = %(org_id)s and id = %(invitation_id)s and status = 'pending'"""
        return await self._run(sql, org_id=org_id, invitation_id=invitation_id, status=status, now=now) == 1

    async def cancel_from(self, org_id: UUID, invited_by: UUID, roles: Collection[RoleName], now: datetime) -> list[invitations.Invitation]:
        sql = f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s
            where i.org_id = %(org_id)s and i.invited_by = %(invited_by)s and i.status = 'pending' and i.role = any(%(roles)s)
              and i.expires_at > %(now)s
            returning {INVITATION.columns}"""
        return await self._all(INVITATION.read, sql, org_id=org_id, invited_by=invited_by, roles=list(roles), now=now)

    async def cancel_to(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[invitations.Invitation]:
        sql = f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s from users u
            where i.org_id = %(org_id)s and i.email = u.email and u.id = any(%(user_ids)s) and i.status = 'pending'
              and i.expires_at > %(now)s
            returning {INVITATION.columns}"""
        return await self._all(INVITATION.read, sql, org_id=org_id, user_ids=list(user_ids), now=now)

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        sql = "select created_at from invitations where org_id = %(org_id)s order by created_at desc, id desc limit 1 offset %(skipped)s"
        return await self._one(lambda row: row[0], sql, org_id=org_id, skipped=n - 1)

    async def expire(self, now: datetime, limit: int) -> list[invitations.Invitation]:
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
