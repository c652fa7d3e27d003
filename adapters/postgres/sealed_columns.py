"""The columns that are encrypted at rest, and their encryption under a new key (security L-1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts import email_queue, mfa
from adapters.postgres.authentication import flows, forms, identities, oauth_credentials, recoveries, signing_keys
from adapters.postgres.billing import facts
from adapters.postgres.engine.statements import SealingRepository
from adapters.postgres.eventing import siem, webhooks
from adapters.postgres.federation.connections import connections, logins
from adapters.postgres.federation.saml import configuration as saml
from adapters.postgres.setup import links as setup_links
from adapters.postgres.tenancy import settings
from core.maintenance.model.housekeeping import SealedColumn
from ports.crypto import SecretContext


@dataclass(frozen=True, slots=True)
class Column:
    """A column with encrypted values.

    `context` returns the context that a row's encrypted value is bound to. `read` selects the names and values in the
    rows after %(after)s, ordered by name. `write` replaces a value.
    """

    context: Callable[[str], SecretContext]
    read: LiteralString
    write: LiteralString


def _by_id(context: Callable[[UUID], SecretContext]) -> Callable[[str], SecretContext]:
    """Return a row's context by its id in text form."""
    return lambda row: context(UUID(row))


def _column(
    context: Callable[[str], SecretContext],
    table: LiteralString,
    column: LiteralString,
    key: LiteralString = "id",
    kind: LiteralString = "uuid",
) -> Column:
    """Return a column in a table with a single key column. `kind` is the key's type."""
    read = f"select {key}::text, {column} from {table} where {column} is not null and {key}::text > %(after)s"
    return Column(
        context,
        f"{read} order by {key}::text limit %(limit)s for update",
        f"update {table} set {column} = %(value)s where {key} = %(row)s::{kind}",
    )


COLUMNS: Final[Mapping[SealedColumn, Column]] = {
    SealedColumn.SIGNING_KEYS: _column(signing_keys.secret_context, "signing_keys", "private_key", "kid", "text"),
    SealedColumn.MAIL_TOKENS: _column(_by_id(email_queue.secret_context), "mails", "token"),
    SealedColumn.SMTP_PASSWORDS: _column(_by_id(settings.secret_context), "smtp_settings", "password", "org_id"),
    SealedColumn.SIEM_TOKENS: _column(_by_id(siem.secret_context), "siem_configurations", "token", "org_id"),
    SealedColumn.MFA_SECRETS: _column(_by_id(mfa.secret_context), "mfa", "secret", "user_id"),
    SealedColumn.OAUTH_CREDENTIALS: Column(
        oauth_credentials.secret_context,
        """
        select x.service_id || '/' || c.slug, x.client_secret
        from service_connections x join connections c on c.id = x.connection_id and c.org_id is null
        where x.client_secret is not null and x.service_id || '/' || c.slug > %(after)s
        order by 1 limit %(limit)s for update of x""",
        """
        update service_connections x set client_secret = %(value)s from connections c
        where c.id = x.connection_id and c.org_id is null
          and x.service_id = split_part(%(row)s, '/', 1)::uuid and c.slug = split_part(%(row)s, '/', 2)""",
    ),
    SealedColumn.SAML_KEYS: _column(_by_id(saml.secret_context), "saml_certificates", "private_key"),
    SealedColumn.CONNECTION_SECRETS: _column(_by_id(oauth_credentials.connection_context), "connections", "client_secret"),
    SealedColumn.CONNECTION_KEYS: _column(_by_id(connections.key_secret_context), "connection_keys", "private_key"),
    SealedColumn.SETUP_PROPOSALS: _column(_by_id(setup_links.document_context), "setup_proposals", "document"),
    SealedColumn.CONNECTION_LOGOUTS: _column(_by_id(logins.secret_context), "connection_logins", "logout"),
    SealedColumn.IDENTITY_ACCESS_TOKENS: _column(identities.access_token_context, "identities", "access_token"),
    SealedColumn.IDENTITY_REFRESH_TOKENS: _column(identities.refresh_token_context, "identities", "refresh_token"),
    SealedColumn.FLOW_IDENTITIES: _column(_by_id(flows.identity_context), "sign_in_flows", "identity"),
    SealedColumn.FLOW_CODES: _column(_by_id(flows.code_context), "sign_in_flows", "challenge_code"),
    SealedColumn.FORMER_MFA_SECRETS: _column(_by_id(mfa.former_secret_context), "former_mfa", "secret"),
    SealedColumn.RECOVERY_SECRETS: _column(_by_id(recoveries.secret_context), "account_recoveries", "secret"),
    SealedColumn.KEPT_FORM_FIELDS: _column(_by_id(forms.secret_context), "kept_forms", "fields"),
    SealedColumn.WEBHOOK_SECRETS: _column(_by_id(webhooks.secret_context), "webhooks", "secret"),
    SealedColumn.FORMER_WEBHOOK_SECRETS: Column(
        lambda row: webhooks.secret_context(UUID(row.partition("/")[0])),
        """
        select webhook_id || '/' || position, secret from former_webhook_secrets where webhook_id || '/' || position > %(after)s
        order by 1 limit %(limit)s for update""",
        """
        update former_webhook_secrets set secret = %(value)s
        where webhook_id = split_part(%(row)s, '/', 1)::uuid and position = split_part(%(row)s, '/', 2)::bigint""",
    ),
    SealedColumn.INVOICE_PAGES: _column(facts.action_page_context, "billing_facts", "action_page", "provider_subscription_id", "text"),
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
