"""Sessions that began at an organization's connection. The tests write the proof, because only its effect is tested."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.authentication.sign_in_proofs import columns_of
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.methods import Proved, SendBehind
from core.authentication.flow.model import Flow
from core.kernel.causes import Caller
from core.kernel.errors import SessionEnded, refuse
from core.kernel.proofs import Method, Proof, Proofs, complete, first_proof
from ports import Ports
from ports.storage import Transaction
from tests.support.builders import run_sql

CONNECTION: Final = UUID(int=59)
_OLDER: Final = """
    update sessions set created_at = created_at - interval '{age}', authenticated_at = authenticated_at - interval '{age}',
        proofs = (select jsonb_agg(p || jsonb_build_object('at', (p ->> 'at')::timestamptz - interval '{age}'))
                  from jsonb_array_elements(proofs) p)"""


def connection_proof(
    org_id: UUID, at: datetime, *, until: datetime | None = None, second: bool = False, connection: UUID = CONNECTION
) -> Proof:
    """Return the proof from a sign-in at a connection. `second`: its provider verified two factors, and is trusted to say so."""
    return Proof(Method.CONNECTION, at, user_verified=second, connection=connection, org=org_id, until=until)


def merged(org_id: UUID, at: datetime, *, second: bool = False) -> Proofs:
    """Return a session's proofs by a password and a sign-in at a connection. `second`: with the account's second factor."""
    of_account = complete(first_proof("password", at), Proof(Method.TOTP, at)) if second else (first_proof("password", at),)
    return *of_account, connection_proof(org_id, at)


async def write_proofs(pool: Pool, user_id: UUID, proofs: Proofs) -> None:
    """Give all a user's sessions these proofs, but impersonations and personal access tokens."""
    columns = columns_of(proofs)
    names = ", ".join(f"{name} = %s" for name in columns)
    await run_sql(
        pool,
        f"update sessions set {names} where user_id = %s and impersonator_id is null and not personal_token",  # noqa: S608  (names of columns)
        *columns.values(),
        user_id,
    )


def older_sessions(age: str) -> str:
    """Return the statement, without its condition, with which all sessions began earlier by this interval, with their proofs."""
    return _OLDER.format(age=age)


@dataclass(frozen=True, slots=True)
class ProvedSignIn:
    """This user's sign-in with a proof that is not checked."""

    account: Account
    proof: Proof

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        async def lock(tx: Transaction, _: Caller, __: SendBehind) -> tuple[Account, None]:
            return await tx.accounts.lock(self.account.id) or refuse(SessionEnded), None

        return Proved(proof=self.proof, lock=lock, account=self.account)
