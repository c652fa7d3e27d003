"""Storage of pending sign-ins. The tokens of their identities are encrypted."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.accounts.attempt_limits import attempt_parameters, count_attempt_sql
from adapters.postgres.accounts.mfa import ENROLLMENT, ENROLLMENT_COLUMN_COUNT, to_enrollment
from adapters.postgres.authentication.identities import sealed
from adapters.postgres.engine.statements import ASYNC_COMMIT, Row, SealingRepository
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import MfaAttempt, PendingSignIn
from core.kernel.connections import ConnectionSlug
from core.kernel.providers import ProviderTokens
from ports.crypto import SecretContext, Vault

COLUMNS: Final = "id, user_id, service_id, provider, created_at, expires_at"
VALUES: Final = "%(id)s, %(user_id)s, %(service_id)s, %(provider)s, %(created_at)s, %(expires_at)s"
# The pending identity
IDENTITY_COLUMNS: Final = """
    issuer, provider_user_id, identity_service_id, identity_email, known_elsewhere, access_token, refresh_token, token_expires_at, scopes"""
IDENTITY_VALUES: Final = """
    %(issuer)s, %(subject)s, %(identity_service_id)s, %(email)s, %(known_elsewhere)s, %(access_token)s, %(refresh_token)s,
    %(token_expires_at)s, %(scopes)s"""
COLUMN_COUNT: Final = 6 + 9  # COLUMNS and IDENTITY_COLUMNS
# Lock the row first. Then every concurrent attempt that is counted for the account is also counted
# for the pending sign-in. The commit does not wait for the disk, so a crash can take back the last
# counts, as it does with all other counters (docs/adr/0002).
COUNT_ATTEMPT: Final = f"""
    with {ASYNC_COMMIT},
    waiting as (
        select {COLUMNS}, {IDENTITY_COLUMNS} from pre_auths cross join async_commit
        where id = %(id)s and user_id = %(user_id)s and failures < %(tries)s and expires_at > %(now)s for update of pre_auths),
    charged as ({count_attempt_sql("%(subject)s::bytea", "from waiting")}),
    tried as (
        update pre_auths p set failures = failures + 1 from waiting, charged
        where p.id = waiting.id and charged.blocked_until is null)
    select waiting.*, charged.blocked_until, {ENROLLMENT}, {ACCOUNT.columns}
    from waiting cross join charged join users u on u.id = waiting.user_id left join mfa m on m.user_id = u.id"""


def access_token_context(row: str) -> SecretContext:
    return SecretContext("pre_auths", row, "access_token")


def refresh_token_context(row: str) -> SecretContext:
    return SecretContext("pre_auths", row, "refresh_token")


def to_pending(vault: Vault, row: Row) -> PendingSignIn:
    """Convert COLUMNS and IDENTITY_COLUMNS. Raises: SealBroken."""
    identity = None if row[6] is None else to_identity(vault, str(row[0]), row[3], row[6:])
    return PendingSignIn(
        id=row[0], user_id=row[1], service_id=row[2], provider=row[3], created_at=row[4], expires_at=row[5], identity=identity
    )


def to_identity(vault: Vault, name: str, provider: ConnectionSlug, row: Row) -> PendingIdentity:
    issuer, subject, service_id, email, known_elsewhere, access_token, refresh_token, expires_at, scopes = row
    tokens = ProviderTokens(
        access_token=vault.open(access_token, access_token_context(name)).decode(),
        refresh_token=None if refresh_token is None else vault.open(refresh_token, refresh_token_context(name)).decode(),
        expires_at=expires_at,
        scopes=tuple(scopes),
    )
    return PendingIdentity(service_id, provider, issuer, subject, email, tokens, known_elsewhere)


class PreAuths(SealingRepository):
    """Implements `ports.storage.authentication.sign_ins.PreAuths` and `MfaAttempts`."""

    async def add(self, pending: PendingSignIn) -> None:
        values: dict[str, object] = {
            "id": pending.id,
            "user_id": pending.user_id,
            "service_id": pending.service_id,
            "provider": pending.provider,
            "created_at": pending.created_at,
            "expires_at": pending.expires_at,
        }
        identity, name = pending.identity, str(pending.id)
        if identity is None:
            await self._write(f"insert into pre_auths ({COLUMNS}) values ({VALUES})", **values)
            return
        await self._write(
            f"insert into pre_auths ({COLUMNS}, {IDENTITY_COLUMNS}) values ({VALUES}, {IDENTITY_VALUES})",
            **values,
            issuer=identity.issuer,
            subject=identity.subject,
            identity_service_id=identity.service_id,
            email=identity.email,
            known_elsewhere=identity.known_elsewhere,
            **sealed(self._vault, identity.tokens, access_token_context(name), refresh_token_context(name)),
        )

    async def count_attempt(
        self, pre_auth_id: UUID, user_id: UUID, tries: int, subject: bytes, attempt_limit: AttemptLimit, now: datetime
    ) -> MfaAttempt | None:
        return await self._one(
            self._to_attempt,
            COUNT_ATTEMPT,
            id=pre_auth_id,
            user_id=user_id,
            tries=tries,
            subject=subject,
            **attempt_parameters(SecretKind.MFA, attempt_limit, now),
        )

    def _to_attempt(self, row: Row) -> MfaAttempt:
        pending, (blocked_until, *enrollment) = (
            to_pending(self._vault, row[:COLUMN_COUNT]),
            row[COLUMN_COUNT : COLUMN_COUNT + 1 + ENROLLMENT_COLUMN_COUNT],
        )
        return MfaAttempt(
            pending=pending,
            account=ACCOUNT.read(row[COLUMN_COUNT + 1 + ENROLLMENT_COLUMN_COUNT :]),
            enrollment=None if enrollment[0] is None else to_enrollment(self._vault, pending.user_id, tuple(enrollment)),
            blocked_until=blocked_until,
        )

    async def remove_all(self, user_id: UUID) -> None:
        await self._run("delete from pre_auths where user_id = %(user_id)s", user_id=user_id)
