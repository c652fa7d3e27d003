"""Invitations."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.programs.service_accounts import SUMMARY
from core.accounts.model.accounts import DELETED_ACCOUNT, AccountSummary
from core.kernel.roles import Role
from core.kernel.values import Email, Page, PageResult
from core.tenancy.model.invitations import Invitation, InvitationAlreadySent, InvitationStatus, ListedInvitation, ReceivedInvitation

# In the order that `to_invitation` expects.
COLUMNS: Final = "i.id, i.org_id, i.email, i.role, i.invited_by, i.status, i.token_hash, i.inviter_token_hash, i.expires_at, i.created_at"
# COLUMNS, but a pending invitation that has passed its expiry reads as expired, even before the
# sweeper marks it.
COLUMNS_NOW: Final = COLUMNS.replace(
    "i.status", "case when i.status = 'pending' and i.expires_at <= %(now)s then 'expired' else i.status end as status"
)
COLUMN_COUNT: Final = 10
SELECT: Final = f"select {COLUMNS} from invitations i "
RECEIVED: Final = f"""
    select {COLUMNS_NOW}, o.slug, o.name, u.email
    from invitations i join organizations o on o.id = i.org_id left join users u on u.id = i.invited_by """
# One of the two tokens of the invitation.
HAS_TOKEN: Final = "(i.token_hash = %(token_hash)s or i.inviter_token_hash = %(token_hash)s)"  # noqa: S105
NEWEST_FIRST: Final = "order by i.created_at desc, i.id desc"
# Maps a current status to conditions on the stored rows. For each condition, an index returns the
# rows in the order of the page.
STORED: Final[Mapping[InvitationStatus | None, Sequence[LiteralString]]] = {
    None: ("true",),
    InvitationStatus.PENDING: ("i.status = 'pending' and i.expires_at > %(now)s",),
    InvitationStatus.EXPIRED: ("i.status = 'expired'", "i.status = 'pending' and i.expires_at <= %(now)s"),
    InvitationStatus.ACCEPTED: ("i.status = 'accepted'",),
    InvitationStatus.REJECTED: ("i.status = 'rejected'",),
    InvitationStatus.CANCELLED: ("i.status = 'cancelled'",),
}


def to_invitation(row: Row) -> Invitation:
    return Invitation(
        id=row[0],
        org_id=row[1],
        email=Email(row[2]),
        role=Role(row[3]),
        invited_by=row[4],
        status=InvitationStatus(row[5]),
        token_hash=row[6],
        inviter_token_hash=row[7],
        expires_at=row[8],
        created_at=row[9],
    )


def to_received(row: Row) -> ReceivedInvitation:
    slug, name, inviter = row[COLUMN_COUNT:]
    return ReceivedInvitation(to_invitation(row), slug, name, None if inviter is None else Email(inviter))


def to_listed_invitation(row: Row) -> ListedInvitation:
    user, service_account = row[COLUMN_COUNT : COLUMN_COUNT + 4], row[COLUMN_COUNT + 4 :]
    inviter = user if user[0] is not None else service_account
    return ListedInvitation(to_invitation(row), DELETED_ACCOUNT if inviter[0] is None else AccountSummary(str(inviter[0]), *inviter[1:]))


class Invitations(Repository):
    """Implements `ports.storage.tenancy.Invitations`."""

    constraints: ClassVar = {"invitations_one_pending": InvitationAlreadySent}

    async def page(
        self, org_id: UUID, status: InvitationStatus | None, page: Page, now: datetime, *, search: str | None = None
    ) -> PageResult[ListedInvitation]:
        matching: LiteralString = "" if search is None else " and strpos(i.email, %(search)s) > 0"
        statement = _page([f"{condition}{matching}" for condition in STORED[status]])
        rows = await self._all(lambda row: row, statement, org_id=org_id, limit=page.limit, offset=page.offset, now=now, search=search)
        return PageResult([to_listed_invitation(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    async def received_by(self, email: Email, now: datetime) -> list[ReceivedInvitation]:
        return await self._all(
            to_received,
            f"{RECEIVED} where i.email = %(email)s and i.status = 'pending' and i.expires_at > %(now)s {NEWEST_FIRST}",
            email=email,
            now=now,
        )

    async def received_by_token(self, token_hash: bytes, now: datetime) -> ReceivedInvitation | None:
        return await self._one(to_received, RECEIVED + f"where {HAS_TOKEN}", token_hash=token_hash, now=now)

    async def add(self, invitation: Invitation) -> None:
        await self._run(
            """
            insert into invitations (id, org_id, email, role, invited_by, status, token_hash, inviter_token_hash, expires_at, created_at)
            values (%(id)s, %(org_id)s, %(email)s, %(role)s, %(invited_by)s, %(status)s, %(token_hash)s, %(inviter_token_hash)s,
                    %(expires_at)s, %(created_at)s)""",
            id=invitation.id,
            org_id=invitation.org_id,
            email=invitation.email,
            role=invitation.role,
            invited_by=invitation.invited_by,
            status=invitation.status,
            token_hash=invitation.token_hash,
            inviter_token_hash=invitation.inviter_token_hash,
            expires_at=invitation.expires_at,
            created_at=invitation.created_at,
        )
        self._signals.invitation_due(invitation.expires_at)

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> Invitation | None:
        return await self._one(
            to_invitation,
            SELECT + "where i.org_id = %(org_id)s and i.id = %(invitation_id)s",
            org_id=org_id,
            invitation_id=invitation_id,
        )

    async def by_token(self, org_id: UUID, token_hash: bytes) -> Invitation | None:
        return await self._one(
            to_invitation,
            SELECT + f"where i.org_id = %(org_id)s and {HAS_TOKEN}",
            org_id=org_id,
            token_hash=token_hash,
        )

    async def pending(self, org_id: UUID, email: Email) -> Invitation | None:
        return await self._one(
            to_invitation,
            SELECT + "where i.org_id = %(org_id)s and i.email = %(email)s and i.status = 'pending'",
            org_id=org_id,
            email=email,
        )

    async def end(self, org_id: UUID, invitation_id: UUID, status: InvitationStatus, now: datetime) -> bool:
        return (
            await self._run(
                """
                update invitations set status = %(status)s, ended_at = %(now)s
                where org_id = %(org_id)s and id = %(invitation_id)s and status = 'pending'""",
                org_id=org_id,
                invitation_id=invitation_id,
                status=status,
                now=now,
            )
            == 1
        )

    async def cancel_from(self, org_id: UUID, invited_by: UUID, roles: Collection[Role], now: datetime) -> list[Invitation]:
        return await self._all(
            to_invitation,
            f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s
            where i.org_id = %(org_id)s and i.invited_by = %(invited_by)s and i.status = 'pending' and i.role = any(%(roles)s)
              and i.expires_at > %(now)s
            returning {COLUMNS}""",
            org_id=org_id,
            invited_by=invited_by,
            roles=[role.value for role in roles],
            now=now,
        )

    async def cancel_to(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[Invitation]:
        return await self._all(
            to_invitation,
            f"""
            update invitations i set status = 'cancelled', ended_at = %(now)s from users u
            where i.org_id = %(org_id)s and i.email = u.email and u.id = any(%(user_ids)s) and i.status = 'pending'
              and i.expires_at > %(now)s
            returning {COLUMNS}""",
            org_id=org_id,
            user_ids=list(user_ids),
            now=now,
        )

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            "select created_at from invitations where org_id = %(org_id)s order by created_at desc, id desc limit 1 offset %(skipped)s",
            org_id=org_id,
            skipped=n - 1,
        )

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        # Keep the common table expression: with a plain subquery the planner may update more rows
        # than the limit.
        return await self._all(
            to_invitation,
            f"""
            with due as (
                select id from invitations where status = 'pending' and expires_at <= %(now)s
                order by expires_at limit %(limit)s for update skip locked)
            update invitations i set status = 'expired', ended_at = %(now)s from due where i.id = due.id
            returning {COLUMNS}""",
            now=now,
            limit=limit,
        )

    async def next_expiry(self) -> datetime | None:
        return await self._one(lambda row: row[0], "select min(expires_at) from invitations where status = 'pending'")


def _page(parts: Sequence[LiteralString]) -> LiteralString:
    """Return SQL for one page of the invitations that match any of these conditions.

    Each row starts with the total number of matches. The outer join returns one row even if the
    page is empty.
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
    select counted.total, {COLUMNS_NOW}, u.id, u.email, u.is_platform_owner, u.created_at, {SUMMARY}
    from (select {totals} as total) counted
    left join (page i left join users u on u.id = i.invited_by
               left join service_accounts a on a.id = i.invited_by and a.org_id = i.org_id) on true
    {NEWEST_FIRST}"""
