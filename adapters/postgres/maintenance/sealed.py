"""The columns that are encrypted at rest, and their encryption under a new key (security L-1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts import email_queue, mfa
from adapters.postgres.authentication import email_sign_ins, identities, kept_forms, oauth_credentials, pre_auths, signing_keys
from adapters.postgres.billing import facts
from adapters.postgres.engine.statements import SealingRepository
from adapters.postgres.eventing import siem, webhooks
from adapters.postgres.federation.saml import configuration as saml
from adapters.postgres.tenancy import mail_server
from core.maintenance.model.housekeeping import SealedColumn
from ports.crypto import SecretContext


@dataclass(frozen=True, slots=True)
class Column:
    """A column with encrypted values.

    `context` returns the context that the encryption of a row's value is bound to. `read` selects
    the names and values of the rows after %(after)s, in the order of their names. `write` replaces
    a value.
    """

    context: Callable[[str], SecretContext]
    read: LiteralString
    write: LiteralString


COLUMNS: Final[Mapping[SealedColumn, Column]] = {
    SealedColumn.SIGNING_KEYS: Column(
        signing_keys.secret_context,
        "select kid, private_key from signing_keys where kid > %(after)s order by kid limit %(limit)s for update",
        "update signing_keys set private_key = %(value)s where kid = %(row)s",
    ),
    SealedColumn.MAIL_TOKENS: Column(
        lambda row: email_queue.secret_context(UUID(row)),
        "select id::text, token from mails where token is not null and id::text > %(after)s order by id::text limit %(limit)s for update",
        "update mails set token = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.SMTP_PASSWORDS: Column(
        lambda row: mail_server.secret_context(UUID(row)),
        """
        select org_id::text, password from smtp_settings where password is not null and org_id::text > %(after)s
        order by org_id::text limit %(limit)s for update""",
        "update smtp_settings set password = %(value)s where org_id = %(row)s::uuid",
    ),
    SealedColumn.SIEM_TOKENS: Column(
        lambda row: siem.secret_context(UUID(row)),
        """
        select org_id::text, token from siem_configurations where org_id::text > %(after)s
        order by org_id::text limit %(limit)s for update""",
        "update siem_configurations set token = %(value)s where org_id = %(row)s::uuid",
    ),
    SealedColumn.MFA_SECRETS: Column(
        lambda row: mfa.secret_context(UUID(row)),
        "select user_id::text, secret from mfa where user_id::text > %(after)s order by user_id::text limit %(limit)s for update",
        "update mfa set secret = %(value)s where user_id = %(row)s::uuid",
    ),
    SealedColumn.OAUTH_CREDENTIALS: Column(
        oauth_credentials.secret_context,
        """
        select service_id || '/' || provider, client_secret from oauth_credentials where service_id || '/' || provider > %(after)s
        order by 1 limit %(limit)s for update""",
        """
        update oauth_credentials set client_secret = %(value)s
        where service_id = split_part(%(row)s, '/', 1)::uuid and provider = split_part(%(row)s, '/', 2)""",
    ),
    SealedColumn.SAML_KEYS: Column(
        lambda row: saml.secret_context(UUID(row)),
        """
        select id::text, private_key from saml_certificates where private_key is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update saml_certificates set private_key = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.IDENTITY_ACCESS_TOKENS: Column(
        identities.access_token_context,
        """
        select id::text, access_token from identities where access_token is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update identities set access_token = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.IDENTITY_REFRESH_TOKENS: Column(
        identities.refresh_token_context,
        """
        select id::text, refresh_token from identities where refresh_token is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update identities set refresh_token = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.WAITING_ACCESS_TOKENS: Column(
        pre_auths.access_token_context,
        """
        select id::text, access_token from pre_auths where access_token is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update pre_auths set access_token = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.WAITING_REFRESH_TOKENS: Column(
        pre_auths.refresh_token_context,
        """
        select id::text, refresh_token from pre_auths where refresh_token is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update pre_auths set refresh_token = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.EMAIL_SIGN_IN_CODES: Column(
        lambda row: email_sign_ins.secret_context(UUID(row)),
        """
        select id::text, code from email_sign_ins where code is not null and id::text > %(after)s
        order by id::text limit %(limit)s for update""",
        "update email_sign_ins set code = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.FORMER_MFA_SECRETS: Column(
        lambda row: mfa.former_secret_context(UUID(row)),
        "select id::text, secret from former_mfa where id::text > %(after)s order by id::text limit %(limit)s for update",
        "update former_mfa set secret = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.KEPT_FORM_FIELDS: Column(
        lambda row: kept_forms.secret_context(UUID(row)),
        "select id::text, fields from kept_forms where id::text > %(after)s order by id::text limit %(limit)s for update",
        "update kept_forms set fields = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.WEBHOOK_SECRETS: Column(
        lambda row: webhooks.secret_context(UUID(row)),
        "select id::text, secret from webhooks where id::text > %(after)s order by id::text limit %(limit)s for update",
        "update webhooks set secret = %(value)s where id = %(row)s::uuid",
    ),
    SealedColumn.FORMER_WEBHOOK_SECRETS: Column(
        lambda row: webhooks.secret_context(UUID(row.partition("/")[0])),
        """
        select webhook_id || '/' || position, secret from former_webhook_secrets where webhook_id || '/' || position > %(after)s
        order by 1 limit %(limit)s for update""",
        """
        update former_webhook_secrets set secret = %(value)s
        where webhook_id = split_part(%(row)s, '/', 1)::uuid and position = split_part(%(row)s, '/', 2)::bigint""",
    ),
    SealedColumn.INVOICE_PAGES: Column(
        facts.action_page_context,
        """
        select provider_subscription_id, action_page from billing_facts
        where action_page is not null and provider_subscription_id > %(after)s
        order by provider_subscription_id limit %(limit)s for update""",
        "update billing_facts set action_page = %(value)s where provider_subscription_id = %(row)s",
    ),
}


class SealedColumns(SealingRepository):
    """Implements `ports.storage.maintenance.SealedColumns`."""

    async def renew(self, column: SealedColumn, after: str, limit: int) -> tuple[int, str | None]:
        sealed = COLUMNS[column]
        rows: list[tuple[str, bytes]] = await self._all(lambda row: (row[0], row[1]), sealed.read, after=after, limit=limit)
        renewed = 0
        for row, value in rows:
            if not self._vault.is_current(value):
                context = sealed.context(row)
                await self._run(sealed.write, row=row, value=self._vault.seal(self._vault.open(value, context), context))
                renewed += 1
        return renewed, rows[-1][0] if len(rows) == limit else None

    async def check(self, column: SealedColumn, after: str, limit: int) -> tuple[int, str | None]:
        sealed = COLUMNS[column]
        rows: list[tuple[str, bytes]] = await self._all(lambda row: (row[0], row[1]), sealed.read, after=after, limit=limit)
        for row, value in rows:
            self._vault.open(value, sealed.context(row))
        return len(rows), rows[-1][0] if len(rows) == limit else None
