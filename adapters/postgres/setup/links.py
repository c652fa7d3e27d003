"""Set-up links and their proposals. The proposals' documents are encrypted."""

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.kernel.roles import holds
from adapters.postgres.programs.service_accounts import MAY_ACT
from core.kernel.callers import SetupPart
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.setup.model import links
from ports.crypto import SecretContext

LINK: Final = Record(
    links.SetupLink,
    "l",
    kind=links.SetupLinkKind,
    parts=lambda parts: tuple(map(SetupPart, parts)),
    recipient=Email,
    ended_by=links.SetupLinkEnd,
)
# The document is sealed, with its row's id.
PROPOSAL: Final = Record(links.SetupProposal, "p", part=SetupPart, document=None, token_hash=bytes)
OF_ACTIVE: Final = f"select {LINK.columns} from setup_links l join organizations o on o.id = l.org_id and o.status = 'active'"
INTEGRATIONS: Final = Capability.INTEGRATIONS_MANAGE
IS_LIVE: Final = "l.ended_at is null and l.expires_at > %(now)s"


def document_context(proposal_id: UUID) -> SecretContext:
    return SecretContext("setup_proposals", str(proposal_id), "document")


class SetupLinks(statements.SealingRepository):
    """Implements `ports.storage.setup.SetupLinks` and `SetupLinksAutocommit`."""

    async def of_org(self, org_id: UUID) -> list[links.SetupLink]:
        sql = f"select {LINK.columns} from setup_links l where l.org_id = %(org_id)s order by l.created_at desc, l.id"
        return await self._all(LINK.read, sql, org_id=org_id)

    async def by_id(self, org_id: UUID, link_id: UUID) -> links.SetupLink | None:
        sql = f"select {LINK.columns} from setup_links l where l.org_id = %(org_id)s and l.id = %(link_id)s"
        return await self._one(LINK.read, sql, org_id=org_id, link_id=link_id)

    async def by_token(self, token_hash: bytes) -> links.SetupLink | None:
        return await self._one(LINK.read, f"{OF_ACTIVE} where l.token_hash = %(token_hash)s", token_hash=token_hash)

    async def of_browser(self, browser_hash: bytes) -> links.SetupLink | None:
        return await self._one(LINK.read, f"{OF_ACTIVE} where l.browser_hash = %(browser_hash)s", browser_hash=browser_hash)

    async def proposals(self, org_id: UUID, link_id: UUID) -> dict[SetupPart, links.SetupProposal]:
        def read(row: statements.Row) -> tuple[SetupPart, links.SetupProposal]:
            proposal = PROPOSAL.read(row)
            document = json.loads(self._vault.open(row[PROPOSAL.width], document_context(proposal.id)))
            return proposal.part, replace(proposal, document=links.SetupDocument.read(document))

        sql = f"""
            select {PROPOSAL.columns}, p.document from setup_proposals p
            where p.org_id = %(org_id)s and p.link_id = %(link_id)s order by p.part"""
        return dict(await self._all(read, sql, org_id=org_id, link_id=link_id))

    async def add(self, link: links.SetupLink, token_hash: bytes) -> None:
        await self._run(LINK.insert("setup_links", "token_hash"), **LINK.values(link), token_hash=token_hash)

    async def save_code(self, link_id: UUID, salt: bytes, code_hash: bytes, until: datetime, limit: int) -> bool:
        sql = """
            update setup_links
            set code_salt = %(salt)s, code_hash = %(code_hash)s, code_until = %(until)s, codes_sent = codes_sent + 1
            where id = %(link_id)s and codes_sent < %(limit)s and browser_hash is null and ended_at is null"""
        return await self._run(sql, link_id=link_id, salt=salt, code_hash=code_hash, until=until, limit=limit) == 1

    async def count_attempt(self, link_id: UUID, limit: int, now: datetime) -> links.CountedCode | None:
        sql = f"""
            update setup_links l set attempts = l.attempts + 1
            where l.id = %(link_id)s and l.attempts < %(limit)s and l.code_until > %(now)s and l.browser_hash is null and {IS_LIVE}
            returning l.attempts, l.code_salt, l.code_hash"""
        return await self._one(
            lambda row: links.CountedCode(row[0], bytes(row[1]), bytes(row[2])), sql, link_id=link_id, limit=limit, now=now
        )

    async def open(self, link: links.SetupLink, browser_hash: bytes) -> bool:
        sql = """
            update setup_links set browser_hash = %(browser_hash)s, opened_at = %(opened_at)s, opened_address = %(opened_address)s,
                opened_agent = %(opened_agent)s, expires_at = %(expires_at)s, code_salt = null, code_hash = null, code_until = null
            where id = %(id)s and browser_hash is null and ended_at is null and expires_at > %(opened_at)s"""
        return await self._run(sql, **LINK.values(link), browser_hash=browser_hash) == 1

    async def end(self, org_id: UUID, link_id: UUID, by: links.SetupLinkEnd, now: datetime) -> links.SetupLink | None:
        sql = f"""
            update setup_links l set ended_at = %(now)s, ended_by = %(by)s
            where l.org_id = %(org_id)s and l.id = %(link_id)s and {IS_LIVE}
            returning {LINK.columns}"""
        return await self._one(LINK.read, sql, org_id=org_id, link_id=link_id, by=by, now=now)

    async def end_unfounded(self, org_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        sql = f"""
            with ended as (
                update setup_links l set ended_at = %(now)s, ended_by = %(by)s
                where l.org_id = %(org_id)s and {IS_LIVE} and not exists (
                    select 1 from memberships m join users u on u.id = m.user_id
                    where m.org_id = l.org_id and m.user_id = l.created_by and {ACCOUNT_IS_USABLE}
                      and {holds(INTEGRATIONS, "m", "l.org_id")})
                  and not exists (
                    select 1 from service_accounts a
                    where a.org_id = l.org_id and a.id = l.created_by and '{INTEGRATIONS}' = any(a.granted) and {MAY_ACT})
                returning l.id, l.name),
            removed as (
                delete from setup_proposals p using ended
                where p.org_id = %(org_id)s and p.link_id = ended.id and p.applied_at is null)
            select id, name from ended order by id"""
        return await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id, by=links.SetupLinkEnd.RIGHTS, now=now)

    async def put_proposal(self, proposal: links.SetupProposal) -> None:
        sealed = self._vault.seal(json.dumps(asdict(proposal.document)).encode(), document_context(proposal.id))
        sql = f"""
            {PROPOSAL.insert("setup_proposals", "document")}
            on conflict (link_id, part) do update set {PROPOSAL.overwrites(without=())}, document = excluded.document"""
        await self._run(sql, **PROPOSAL.values(proposal), document=sealed)

    async def remove_proposals(self, org_id: UUID, link_id: UUID) -> None:
        sql = "delete from setup_proposals where org_id = %(org_id)s and link_id = %(link_id)s and applied_at is null"
        await self._run(sql, org_id=org_id, link_id=link_id)

    async def mark_applied(self, org_id: UUID, link_id: UUID, part: SetupPart, by: UUID, now: datetime) -> None:
        sql = """
            update setup_proposals set applied_at = %(now)s, applied_by = %(by)s, token_hash = null
            where org_id = %(org_id)s and link_id = %(link_id)s and part = %(part)s"""
        await self._run(sql, org_id=org_id, link_id=link_id, part=part, by=by, now=now)

    async def try_token(self, token_hash: bytes, request: str, now: datetime) -> links.ProposedToken | None:
        # Only the first request is written: a directory with a proposed token must not cause a write with every
        # request.
        sql = """
            with first as (
                update setup_proposals set tried_at = %(now)s, tried_with = %(request)s
                where token_hash = %(token_hash)s and tried_at is null)
            select o.id, o.slug, p.id from setup_proposals p join organizations o on o.id = p.org_id and o.status = 'active'
            where p.token_hash = %(token_hash)s"""
        return await self._one(lambda row: links.ProposedToken(*row), sql, token_hash=token_hash, request=request, now=now)
