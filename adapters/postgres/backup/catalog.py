"""A database's tables and sequences, a session for their transfer, and the data that a backup leaves out (docs/adr/0022).

After a restore, sign-ins and links from before would be valid again, also if they ended after the backup. So backups
leave sign-ins and links out, and users sign in again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from adapters.postgres.backup.manifest import BackupError

Session = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the service's schema, with the columns that are stored."""

    columns: list[str]
    unlogged: bool


@contextmanager
def session(conninfo: str, isolation: sql.SQL) -> Iterator[Session]:
    """Yield a session in a transaction, which ends with the block. Raises: BackupError.

    The session is synchronous: psycopg passes COPY rows separately, which with Trio takes seven times as long.
    """
    try:
        with psycopg.connect(conninfo, autocommit=True, application_name="gatehouse backup", client_encoding="UTF8") as connection:
            connection.execute(sql.SQL("begin isolation level {}").format(isolation))
            # `set local`, because a pooler can give every transaction another session. The settings
            # from timezone on decide how values are written as text.
            connection.execute(
                """
                set local statement_timeout = 0; set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0;
                set local timezone = 'UTC'; set local datestyle = 'ISO'; set local intervalstyle = 'postgres';
                set local bytea_output = 'hex'; set local extra_float_digits = 1"""
            )
            yield connection
            connection.execute("commit")
    except errors.OperationalError as error:
        raise BackupError(f"The database cannot be reached or ended the session: {_first_line(error)}.") from None
    except psycopg.Error as error:
        raise BackupError(f"The database refused the data: {_first_line(error)}.") from None


def tables(connection: Session) -> dict[str, Table]:
    """Return the current schema's tables, except tables of extensions."""
    rows = connection.execute(
        """
        select c.relname, array_agg(a.attname::text order by a.attnum), c.relpersistence = 'u'
        from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
        where n.nspname = current_schema() and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
              and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
        group by c.oid order by c.relname"""
    )
    return {name: Table(columns, unlogged) for name, columns, unlogged in rows}


def sequences(connection: Session) -> dict[str, int | None]:
    """Return the last values of the current schema's sequences, or None if a sequence was not used."""
    return dict(connection.execute("select sequencename, last_value from pg_sequences where schemaname = current_schema() order by 1"))


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip().splitlines()[0].rstrip(".")


# Unlogged tables are left out as well.
TABLES_LEFT_OUT: Final = frozenset(
    {
        # sessions, with their tokens and their state
        "sessions",
        "refresh_tokens",
        "policy_passes",
        "break_glass_uses",
        "impersonated_organizations",
        "personal_tokens",
        "saml_sessions",
        "logout_notices",
        "connection_logins",
        # unfinished sign-ins and sign-outs
        "authorization_codes",
        "device_codes",
        "kept_forms",
        "sent_forms",
        "sign_in_flows",
        "reauthentications",
        "pushed_requests",
        "saml_logout_requests",
        "saml_logouts",
        # used once, within a minute; its partitions are unlogged
        "dpop_proofs",
        # what the readers of set-up links prepared; an admin creates a new link
        "setup_links",
        "setup_proposals",
        # links in emails; invitations and undo links have their own tables, and stay valid
        "one_time_tokens",
        "account_recoveries",
        # used up within minutes
        "used_passkey_challenges",
        "used_provider_messages",
        # leases that ended processes had
        "leases",
        # The next start creates a key. A key that was retired after the backup must not sign again.
        "signing_keys",
        # The backup's description lists the migrations.
        "schema_migrations",
    }
)

COLUMNS_LEFT_OUT: Final = {
    "devices": frozenset({"trust_hash", "trust_expires_at"}),  # the user proves the second factor again
}
