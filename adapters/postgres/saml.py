"""SAML: how the identity providers of services are set up, their certificates, and who is being signed in and out through them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts import COLUMNS as ACCOUNT
from adapters.postgres.accounts import to_account
from adapters.postgres.services import CLIENT, CONTEXT, CONTEXT_WIDTH, to_client, to_context
from adapters.postgres.statements import Row, SealingRepository
from core.access import ServiceContext
from core.saml import Certificate, Configuration, NameIdFormat, Setup
from core.saml_logout import Logout, Participation
from core.saml_messages import NameId, Status
from core.saml_sign_on import Locked, SignOn
from core.services import Service
from ports.crypto import Place

CONFIGURATION: Final = (
    "c.enabled, c.entity_id, c.acs_url, c.slo_url, c.name_id_format, c.attribute_mapping, c.sign_assertions, c.sign_response"
)
CONFIGURATION_WIDTH: Final = 8
CERTIFICATE: Final = "k.id, k.certificate, k.private_key, k.valid_from, k.valid_until, k.created_at"
SETUP: Final = f"""
    select {CONTEXT}, {CONFIGURATION}, {CERTIFICATE}
    from services v join organizations vo on vo.id = v.org_id
    left join saml_configurations c on c.service_id = v.id
    left join saml_certificates k on k.service_id = v.id and k.deactivated_at is null"""
LOCK_ACCOUNT: Final = f"select {ACCOUNT} from users u where u.id = %(user_id)s for no key update"
SIGN_ON: Final = (
    "state_hash, browser_hash, org_id, service_id, request_id, relay_state, force_authn, is_passive, created_at, expires_at, user_id, "
    "session_id, ticket_hash, status, subject, subject_format, context_class"
)
PARTICIPATION: Final = "org_id, service_id, session_index, name_id, name_id_format"
FORMER_NAMES: Final = 20  # of one session at one service
LOGOUT: Final = (
    "id, browser_hash, org_id, service_id, request_id, relay_state, name_id, session_index, user_id, begun_at, matched, is_partial, "
    "created_at, expires_at, after, name_id_format"
)


def place(row: UUID) -> Place:
    return Place("saml_certificates", str(row), "private_key")


def to_configuration(row: Row) -> Configuration:
    mapping: Mapping[str, str] | None = row[5]
    return Configuration(
        enabled=row[0],
        entity_id=row[1],
        acs_url=row[2],
        slo_url=row[3],
        name_id_format=NameIdFormat(row[4]),
        attribute_mapping=mapping,
        sign_assertions=row[6],
        sign_response=row[7],
    )


def to_sign_on(row: Row) -> SignOn:
    return SignOn(
        state_hash=row[0],
        browser_hash=row[1],
        org_id=row[2],
        service_id=row[3],
        request_id=row[4],
        relay_state=row[5],
        force_authn=row[6],
        is_passive=row[7],
        created_at=row[8],
        expires_at=row[9],
        user_id=row[10],
        session_id=row[11],
        ticket_hash=row[12],
        status=None if row[13] is None else Status(row[13]),
        subject=None if row[14] is None else NameId(row[14], NameIdFormat(row[15])),
        context_class=row[16],
    )


def to_participation(row: Row) -> Participation:
    return Participation(
        org_id=row[0],
        service_id=row[1],
        session_index=row[2],
        name_id=NameId(row[3], NameIdFormat(row[4])),
        former_names=tuple(row[5]) if len(row) > 5 else (),
    )


def to_logout(row: Row) -> Logout:
    return Logout(
        id=row[0],
        browser_hash=row[1],
        org_id=row[2],
        service_id=row[3],
        request_id=row[4],
        relay_state=row[5],
        name_id=None if row[6] is None else NameId(row[6], NameIdFormat(row[15])),
        session_indexes=tuple(row[7] or ()),
        user_id=row[8],
        begun_at=row[9],
        matched=row[10],
        is_partial=row[11],
        created_at=row[12],
        expires_at=row[13],
        after=row[14],
    )


class Saml(SealingRepository):
    """ports.storage.Saml."""

    # How it is set up

    async def configuration(self, org_id: UUID, service_id: UUID) -> Configuration | None:
        return await self._one(
            to_configuration,
            f"select {CONFIGURATION} from saml_configurations c where c.org_id = %(org_id)s and c.service_id = %(service_id)s",
            org_id=org_id,
            service_id=service_id,
        )

    async def certificate(self, org_id: UUID, service_id: UUID) -> Certificate | None:
        return await self._one(
            self._to_certificate,
            f"""
            select {CERTIFICATE} from saml_certificates k
            where k.org_id = %(org_id)s and k.service_id = %(service_id)s and k.deactivated_at is null""",
            org_id=org_id,
            service_id=service_id,
        )

    async def setup(self, org_slug: str, service_slug: str) -> Setup | None:
        return await self._one(
            self._to_setup,
            f"{SETUP} where vo.slug = %(org_slug)s and v.slug = %(service_slug)s",
            org_slug=org_slug,
            service_slug=service_slug,
        )

    async def setup_of(self, service_id: UUID) -> Setup | None:
        return await self._one(self._to_setup, f"{SETUP} where v.id = %(service_id)s", service_id=service_id)

    async def configure(self, org_id: UUID, service_id: UUID, configuration: Configuration, now: datetime) -> None:
        mapping = configuration.attribute_mapping
        await self._run(
            """
            insert into saml_configurations (service_id, org_id, enabled, entity_id, acs_url, slo_url, name_id_format, attribute_mapping,
                                             sign_assertions, sign_response, updated_at)
            values (%(service_id)s, %(org_id)s, %(enabled)s, %(entity_id)s, %(acs_url)s, %(slo_url)s, %(name_id_format)s,
                    %(attribute_mapping)s, %(sign_assertions)s, %(sign_response)s, %(now)s)
            on conflict (service_id) do update set
                enabled = excluded.enabled, entity_id = excluded.entity_id, acs_url = excluded.acs_url, slo_url = excluded.slo_url,
                name_id_format = excluded.name_id_format, attribute_mapping = excluded.attribute_mapping,
                sign_assertions = excluded.sign_assertions, sign_response = excluded.sign_response, updated_at = excluded.updated_at""",
            service_id=service_id,
            org_id=org_id,
            enabled=configuration.enabled,
            entity_id=configuration.entity_id,
            acs_url=configuration.acs_url,
            slo_url=configuration.slo_url,
            name_id_format=configuration.name_id_format,
            attribute_mapping=None if mapping is None else Jsonb(dict(mapping)),
            sign_assertions=configuration.sign_assertions,
            sign_response=configuration.sign_response,
            now=now,
        )

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        return (
            await self._run(
                """
                update saml_configurations set enabled = false, updated_at = %(now)s
                where org_id = %(org_id)s and service_id = %(service_id)s and enabled""",
                org_id=org_id,
                service_id=service_id,
                now=now,
            )
            > 0
        )

    async def deactivate_certificate(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        return (
            await self._run(
                """
                update saml_certificates set deactivated_at = %(now)s, private_key = null
                where org_id = %(org_id)s and service_id = %(service_id)s and deactivated_at is null""",
                org_id=org_id,
                service_id=service_id,
                now=now,
            )
            > 0
        )

    async def add_certificate(self, org_id: UUID, service_id: UUID, certificate: Certificate) -> None:
        await self._run(
            """
            insert into saml_certificates (id, org_id, service_id, certificate, private_key, valid_from, valid_until, created_at)
            values (%(id)s, %(org_id)s, %(service_id)s, %(certificate)s, %(private_key)s, %(valid_from)s, %(valid_until)s,
                    %(created_at)s)""",
            id=certificate.id,
            org_id=org_id,
            service_id=service_id,
            certificate=certificate.certificate,
            private_key=self._vault.seal(certificate.private_key, place(certificate.id)),
            valid_from=certificate.valid_from,
            valid_until=certificate.valid_until,
            created_at=certificate.created_at,
        )

    # Signing in

    async def begin_sign_on(self, sign_on: SignOn) -> bool:
        # The service stays until the transaction ends, since the row refers to it; so for the logouts below.
        return (
            await self._run(
                """
                insert into saml_sign_ons (state_hash, browser_hash, org_id, service_id, request_id, relay_state, force_authn, is_passive,
                                           status, subject, subject_format, context_class, created_at, expires_at)
                select %(state_hash)s, %(browser_hash)s, v.org_id, v.id, %(request_id)s, %(relay_state)s, %(force_authn)s,
                       %(is_passive)s, %(status)s, %(subject)s, %(subject_format)s, %(context_class)s, %(created_at)s, %(expires_at)s
                from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share
                on conflict on constraint saml_sign_ons_request_key do nothing""",
                state_hash=sign_on.state_hash,
                browser_hash=sign_on.browser_hash,
                org_id=sign_on.org_id,
                service_id=sign_on.service_id,
                request_id=sign_on.request_id,
                relay_state=sign_on.relay_state,
                force_authn=sign_on.force_authn,
                is_passive=sign_on.is_passive,
                status=sign_on.status,
                subject=sign_on.subject.value if sign_on.subject else None,
                subject_format=sign_on.subject.format if sign_on.subject else None,
                context_class=sign_on.context_class,
                created_at=sign_on.created_at,
                expires_at=sign_on.expires_at,
            )
            > 0
        )

    async def sign_on(self, service_id: UUID, state_hash: bytes, browser_hash: bytes, now: datetime) -> SignOn | None:
        return await self._one(
            to_sign_on,
            f"""
            select {SIGN_ON} from saml_sign_ons
            where state_hash = %(state_hash)s and browser_hash = %(browser_hash)s and service_id = %(service_id)s
              and answered_at is null and expires_at > %(now)s""",
            service_id=service_id,
            state_hash=state_hash,
            browser_hash=browser_hash,
            now=now,
        )

    async def waiting(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        return await self._one(
            to_client,
            f"""
            {CLIENT} join saml_sign_ons s on s.service_id = v.id
            where s.state_hash = %(state_hash)s and s.answered_at is null and s.expires_at > %(now)s""",
            state_hash=state_hash,
            now=now,
        )

    async def complete_sign_on(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[str, str] | None:
        return await self._one(
            lambda row: (row[0], row[1]),
            """
            update saml_sign_ons s set user_id = %(user_id)s, session_id = %(session_id)s, ticket_hash = %(ticket_hash)s
            from services v join organizations o on o.id = v.org_id
            where s.state_hash = %(state_hash)s and s.answered_at is null and s.expires_at > %(now)s and v.id = s.service_id
            returning o.slug, v.slug""",
            state_hash=state_hash,
            user_id=user_id,
            session_id=session_id,
            ticket_hash=ticket_hash,
            now=now,
        )

    async def answer_sign_on(self, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        return (
            await self._run(
                """
                update saml_sign_ons set answered_at = %(now)s
                where state_hash = %(state_hash)s and service_id = %(service_id)s and answered_at is null and expires_at > %(now)s""",
                service_id=service_id,
                state_hash=state_hash,
                now=now,
            )
            > 0
        )

    async def reopen_sign_on(self, service_id: UUID, state_hash: bytes) -> None:
        await self._run(
            "update saml_sign_ons set answered_at = null where state_hash = %(state_hash)s and service_id = %(service_id)s",
            service_id=service_id,
            state_hash=state_hash,
        )

    def lock_person(self, org_id: UUID, service_slug: str, user_id: UUID, session_id: UUID, now: datetime) -> Locked:
        # One after the other, each seeing what those whom the one before has waited for have done.
        return Locked(
            membership=self._one_soon(
                lambda _: True,
                "select 1 from memberships where org_id = %(org_id)s and user_id = %(user_id)s for no key update",
                org_id=org_id,
                user_id=user_id,
            ),
            account=self._one_soon(to_account, LOCK_ACCOUNT, user_id=user_id),
            session_lives=self._one_soon(
                lambda _: True,
                """
                select 1 from sessions s join users u on u.id = s.user_id
                where s.id = %(session_id)s and s.user_id = %(user_id)s and s.ended_at is null and s.expires_at > %(now)s
                  and s.impersonator_id is null and s.service_id is null and u.deactivated_at is null and u.anonymized_at is null""",
                session_id=session_id,
                user_id=user_id,
                now=now,
            ),
            use=self._one_soon(
                lambda _: True,
                """
                select 1 from service_users r join services v on v.id = r.service_id
                where v.org_id = %(org_id)s and v.slug = %(slug)s and r.user_id = %(user_id)s""",
                org_id=org_id,
                slug=service_slug,
                user_id=user_id,
            ),
        )

    async def name_of(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        name = await self._one(
            lambda row: str(row[0]),
            """
            insert into saml_name_ids as n (service_id, user_id, org_id, name_id, created_at)
            values (%(service_id)s, %(user_id)s, %(org_id)s, %(new)s, %(now)s)
            on conflict (service_id, user_id) do update set name_id = n.name_id
            returning name_id""",
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
            new=new,
            now=now,
        )
        assert name is not None, "there is one, or this one"
        return name

    async def take_part(self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime) -> str:
        index = await self._one(
            lambda row: str(row[0]),
            """
            insert into saml_sessions as p (session_id, service_id, org_id, session_index, name_id, name_id_format, created_at)
            values (%(session_id)s, %(service_id)s, %(org_id)s, %(session_index)s, %(name_id)s, %(format)s, %(now)s)
            on conflict (session_id, service_id) do update
            set name_id = excluded.name_id, name_id_format = excluded.name_id_format,
                former_names = case when p.name_id = excluded.name_id then p.former_names
                                    else (p.name_id || p.former_names)[:%(former_names)s] end
            returning session_index""",
            session_id=session_id,
            service_id=service_id,
            org_id=org_id,
            session_index=session_index,
            name_id=name_id.value,
            format=name_id.format,
            former_names=FORMER_NAMES,
            now=now,
        )
        assert index is not None, "there is one, or this one"
        return index

    # Signing out

    async def participations(self, session_id: UUID) -> list[Participation]:
        return await self._all(
            to_participation,
            f"""
            select {PARTICIPATION}, former_names from saml_sessions where session_id = %(session_id)s order by created_at, service_id""",
            session_id=session_id,
        )

    async def end_participations(self, session_id: UUID) -> None:
        await self._run("delete from saml_sessions where session_id = %(session_id)s", session_id=session_id)

    async def keep_participations(self, before: UUID, now_in: UUID) -> None:
        await self._run(
            """
            update saml_sessions p set session_id = %(now_in)s
            from sessions was, sessions now_in
            where p.session_id = %(before)s and was.id = %(before)s and now_in.id = %(now_in)s and now_in.user_id = was.user_id
              and not exists (
                select 1 from saml_sessions newer where newer.session_id = %(now_in)s and newer.service_id = p.service_id)""",
            before=before,
            now_in=now_in,
        )

    async def begin_logout(self, logout: Logout) -> bool:
        return await self._exists(
            f"""
            insert into saml_logouts ({LOGOUT})
            select %(id)s, %(browser_hash)s, %(org_id)s, %(service_id)s, %(request_id)s, %(relay_state)s, %(name_id)s, %(session_indexes)s,
                   %(user_id)s, %(begun_at)s, %(matched)s, %(is_partial)s, %(created_at)s, %(expires_at)s, %(after)s, %(name_id_format)s
            where %(service_id)s::uuid is null or exists (
                select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share)
            returning 1""",
            id=logout.id,
            browser_hash=logout.browser_hash,
            org_id=logout.org_id,
            service_id=logout.service_id,
            request_id=logout.request_id,
            relay_state=logout.relay_state,
            name_id=logout.name_id.value if logout.name_id else None,
            name_id_format=logout.name_id.format if logout.name_id else None,
            session_indexes=list(logout.session_indexes),
            user_id=logout.user_id,
            begun_at=logout.begun_at,
            matched=logout.matched,
            is_partial=logout.is_partial,
            created_at=logout.created_at,
            expires_at=logout.expires_at,
            after=logout.after,
        )

    async def lock_logout(self, browser_hash: bytes, now: datetime) -> Logout | None:
        return await self._one(
            to_logout,
            f"select {LOGOUT} from saml_logouts where browser_hash = %(browser_hash)s and expires_at > %(now)s for update",
            browser_hash=browser_hash,
            now=now,
        )

    async def mark_logout(self, logout_id: UUID, user_id: UUID | None, now: datetime, *, matched: bool) -> None:
        await self._run(
            """
            update saml_logouts
            set begun_at = %(now)s, user_id = %(user_id)s, matched = %(matched)s, name_id = null, name_id_format = null,
                session_index = null
            where id = %(logout_id)s""",
            logout_id=logout_id,
            user_id=user_id,
            now=now,
            matched=matched,
        )

    async def mark_partial(self, logout_id: UUID) -> None:
        await self._run("update saml_logouts set is_partial = true where id = %(logout_id)s", logout_id=logout_id)

    async def add_logout_request(self, logout_id: UUID, request_id: str, to: Participation) -> bool:
        return await self._exists(
            """
            insert into saml_logout_requests (request_id, logout_id, org_id, service_id, session_index, name_id, name_id_format)
            select %(request_id)s, %(logout_id)s, v.org_id, v.id, %(session_index)s, %(name_id)s, %(format)s
            from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share
            returning 1""",
            request_id=request_id,
            logout_id=logout_id,
            org_id=to.org_id,
            service_id=to.service_id,
            session_index=to.session_index,
            name_id=to.name_id.value,
            format=to.name_id.format,
        )

    async def next_logout_request(self, logout_id: UUID, now: datetime) -> tuple[str, Participation] | None:
        return await self._one(
            lambda row: (row[0], to_participation(row[1:])),
            f"""
            update saml_logout_requests set sent_at = %(now)s
            where request_id = (
                select request_id from saml_logout_requests where logout_id = %(logout_id)s and sent_at is null
                order by request_id limit 1)
            returning request_id, {PARTICIPATION}""",
            logout_id=logout_id,
            now=now,
        )

    async def take_logout_answer(
        self, browser_hash: bytes, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool:
        return await self._exists(
            """
            with answered as (
                update saml_logout_requests r set answered_at = %(now)s
                from saml_logouts l
                where r.request_id = %(request_id)s and r.org_id = %(org_id)s and r.service_id = %(service_id)s
                  and r.sent_at is not null and r.answered_at is null
                  and l.id = r.logout_id and l.browser_hash = %(browser_hash)s and l.expires_at > %(now)s
                returning r.logout_id),
            marked as (
                update saml_logouts l set is_partial = true from answered where l.id = answered.logout_id and not %(is_success)s)
            select 1 from answered""",
            browser_hash=browser_hash,
            org_id=org_id,
            service_id=service_id,
            request_id=request_id,
            now=now,
            is_success=is_success,
        )

    async def end_logout(self, logout_id: UUID) -> bool:
        return (
            await self._one(
                lambda row: bool(row[0]),
                """
                delete from saml_logouts l where l.id = %(logout_id)s
                returning l.is_partial or exists (
                    select 1 from saml_logout_requests r where r.logout_id = l.id and r.answered_at is null)""",
                logout_id=logout_id,
            )
            or False
        )

    def _to_certificate(self, row: Row) -> Certificate:
        return Certificate(
            id=row[0],
            certificate=row[1],
            private_key=self._vault.open(row[2], place(row[0])),
            valid_from=row[3],
            valid_until=row[4],
            created_at=row[5],
        )

    def _to_setup(self, row: Row) -> Setup:
        configuration, certificate = row[CONTEXT_WIDTH : CONTEXT_WIDTH + CONFIGURATION_WIDTH], row[CONTEXT_WIDTH + CONFIGURATION_WIDTH :]
        return Setup(
            to_context(row),
            None if configuration[0] is None else to_configuration(configuration),
            None if certificate[0] is None else self._to_certificate(certificate),
        )
