"""The services' SAML configurations and certificates."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.engine import records, statements
from core.federation.saml.model.configuration import (
    PREVIOUS_KEPT,
    AttributeFormat,
    CertificateState,
    NameIdFormat,
    SamlCertificate,
    SamlConfiguration,
    SamlSetup,
)
from ports import crypto

CONFIGURATION: Final = records.Record(
    SamlConfiguration,
    "c",
    name_id_format=NameIdFormat,
    attribute_mapping=records.Column(write=lambda mapping: Jsonb(dict(mapping))),
    attribute_formats=records.Column(
        read=lambda formats: {name: AttributeFormat(each.get("name_format"), each.get("separator")) for name, each in formats.items()},
        write=lambda formats: Jsonb({name: asdict(each) for name, each in formats.items()}),
    ),
)
CONFIGURE: Final = f"""
    {CONFIGURATION.insert("saml_configurations", "service_id", "org_id", "updated_at")}
    on conflict (service_id) do update set {CONFIGURATION.overwrites(without=())}, updated_at = excluded.updated_at"""
to_configuration_if_any: Final = CONFIGURATION.if_any("enabled")
CERTIFICATE: Final = records.Record(SamlCertificate, "k", private_key=records.Column(write=lambda key: key()))  # stored sealed
SETUP: Final = f"{CONTEXT.columns}, {CONFIGURATION.columns}, {CERTIFICATE.columns}"
SETUP_WIDTH: Final = CONTEXT.width + CONFIGURATION.width + CERTIFICATE.width
SETUP_TABLES: Final = """
    services v join organizations vo on vo.id = v.org_id
    left join saml_configurations c on c.service_id = v.id
    left join saml_certificates k on k.service_id = v.id and k.deactivated_at is null"""


def secret_context(row: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("saml_certificates", str(row), "private_key")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An encrypted private key, decrypted by a call. Two stored keys are equal if they have the same ciphertext."""

    vault: crypto.Vault = field(repr=False)
    sealed: bytes = field(repr=False)
    context: crypto.SecretContext

    def __call__(self) -> bytes:
        return self.vault.open(self.sealed, self.context)


def to_certificate(vault: crypto.Vault, row: statements.Row, context: Callable[[UUID], crypto.SecretContext]) -> SamlCertificate:
    """Return the certificate from a row that starts with the CERTIFICATE columns. `context` returns the secret context of a key."""
    id_, certificate, sealed, *further = row
    return CERTIFICATE.read((id_, certificate, StoredKey(vault, sealed, context(id_)), *further))


def certificate_parameters(
    vault: crypto.Vault, certificate: SamlCertificate, context: Callable[[UUID], crypto.SecretContext]
) -> dict[str, object]:
    """Return the parameters with the names of the CERTIFICATE columns."""
    return CERTIFICATE.values(certificate) | {"private_key": vault.seal(certificate.private_key(), context(certificate.id))}


def to_setup(vault: crypto.Vault, row: statements.Row) -> SamlSetup:
    """Return the value from a row that starts with the SETUP columns."""
    configuration, certificate = row[CONTEXT.width : CONTEXT.width + CONFIGURATION.width], row[CONTEXT.width + CONFIGURATION.width :]
    return SamlSetup(
        CONTEXT.read(row),
        to_configuration_if_any(configuration),
        None if certificate[0] is None else to_certificate(vault, certificate, secret_context),
    )


class Saml(statements.SealingRepository):
    """SAML configurations and certificates in PostgreSQL."""

    async def configuration(self, org_id: UUID, service_id: UUID) -> SamlConfiguration | None:
        sql = f"select {CONFIGURATION.columns} from saml_configurations c where c.org_id = %(org_id)s and c.service_id = %(service_id)s"
        return await self._one(CONFIGURATION.read, sql, org_id=org_id, service_id=service_id)

    async def certificate(self, org_id: UUID, service_id: UUID) -> SamlCertificate | None:
        sql = f"""
            select {CERTIFICATE.columns} from saml_certificates k
            where k.org_id = %(org_id)s and k.service_id = %(service_id)s and k.deactivated_at is null"""
        return await self._one(lambda row: to_certificate(self._vault, row, secret_context), sql, org_id=org_id, service_id=service_id)

    async def certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> dict[CertificateState, SamlCertificate]:
        rows = await self._all(
            lambda row: (CertificateState(row[-1]), to_certificate(self._vault, row, secret_context)),
            f"""
            select {CERTIFICATE.columns}, coalesce(k.standby, 'active') from saml_certificates k
            where k.org_id = %(org_id)s and k.service_id = %(service_id)s
              and (k.deactivated_at is null or k.valid_until > %(now)s and (k.standby = 'next' or k.kept_until > %(now)s))""",
            org_id=org_id,
            service_id=service_id,
            now=now,
        )
        certificates = dict(rows)
        return {state: certificates[state] for state in CertificateState if state in certificates}

    async def services_with_entity_id(self, org_id: UUID, service_id: UUID, entity_id: str, limit: int) -> list[str]:
        sql = """
            select v.slug from services v join saml_configurations c on c.service_id = v.id
            where v.org_id = %(org_id)s and v.id <> %(service_id)s and c.entity_id = %(entity_id)s order by v.slug limit %(limit)s"""
        return await self._all(lambda row: str(row[0]), sql, org_id=org_id, service_id=service_id, entity_id=entity_id, limit=limit)

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        sql = f"select {SETUP} from {SETUP_TABLES} where vo.slug = %(org_slug)s and v.slug = %(service_slug)s"
        return await self._one(partial(to_setup, self._vault), sql, org_slug=org_slug, service_slug=service_slug)

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        sql = f"select {SETUP} from {SETUP_TABLES} where v.org_id = %(org_id)s and v.id = %(service_id)s"
        return await self._one(partial(to_setup, self._vault), sql, org_id=org_id, service_id=service_id)

    async def configure(self, org_id: UUID, service_id: UUID, configuration: SamlConfiguration, now: datetime) -> None:
        await self._run(CONFIGURE, **CONFIGURATION.values(configuration), service_id=service_id, org_id=org_id, updated_at=now)

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        sql = """
                update saml_configurations set enabled = false, updated_at = %(now)s
                where org_id = %(org_id)s and service_id = %(service_id)s and enabled"""
        return await self._run(sql, org_id=org_id, service_id=service_id, now=now) > 0

    async def deactivate_certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        return await self.move_certificate(org_id, service_id, [*CertificateState], None, now)

    async def move_certificate(
        self, org_id: UUID, service_id: UUID, states: Sequence[CertificateState], to: CertificateState | None, now: datetime
    ) -> bool:
        return (
            await self._run(
                """
                update saml_certificates set
                    deactivated_at = case when %(to)s::text = 'active' then null else coalesce(deactivated_at, %(now)s) end,
                    private_key = case when %(to)s::text is null then null else private_key end,
                    standby = nullif(%(to)s::text, 'active'),
                    kept_until = case when %(to)s::text = 'previous' then %(kept_until)s::timestamptz end
                where org_id = %(org_id)s and service_id = %(service_id)s and private_key is not null
                  and coalesce(standby, 'active') = any(%(states)s)""",
                org_id=org_id,
                service_id=service_id,
                states=[state.value for state in states],
                to=None if to is None else to.value,
                now=now,
                kept_until=now + PREVIOUS_KEPT,
            )
            > 0
        )

    async def add_certificate(
        self, org_id: UUID, service_id: UUID, certificate: SamlCertificate, state: CertificateState = CertificateState.ACTIVE
    ) -> None:
        is_next = state is CertificateState.NEXT
        await self._run(
            CERTIFICATE.insert("saml_certificates", "org_id", "service_id", "standby", "deactivated_at"),
            **certificate_parameters(self._vault, certificate, secret_context),
            org_id=org_id,
            service_id=service_id,
            standby="next" if is_next else None,
            deactivated_at=certificate.created_at if is_next else None,
        )
