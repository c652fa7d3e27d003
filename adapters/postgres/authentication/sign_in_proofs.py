"""The session columns for the proofs of the last sign-in. API requests read the derived columns instead of all proofs."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.records import Columns
from adapters.postgres.engine.statements import Row
from core.kernel import proofs as kernel_proofs

NAMES: Final = ("proofs", "strength", "restricted_to", "authenticated_at", "fresh")
# For a session `s`, which may be missing
STRENGTH: Final = "coalesce(s.strength, 1)"
# When the newest second factor was proved. Only accounts with a second factor ask.
SECOND_AT: Final = """
    (select max((p ->> 'at')::timestamptz) from jsonb_array_elements(s.proofs) p
     where p ->> 'method' in ('totp', 'backup_code', 'passkey'))"""
_METHODS: Final[Mapping[str | None, kernel_proofs.Method]] = MappingProxyType({method.value: method for method in kernel_proofs.Method})
_FLAGS: Final = ("user_verified", "phishing_resistant", "hardware")


def proof_columns(alias: LiteralString) -> Columns:
    """Return the column with the proofs, for the session with this alias."""
    return Columns(f"{alias}.proofs", 1, to_proofs)


# The name of the connection through which a session's user signed in (`s`), or null
CONNECTION_NAME: Final = """
    (select c.name from jsonb_array_elements(s.proofs) p
     join connections c on c.id = (p ->> 'connection')::uuid and c.org_id = (p ->> 'org')::uuid limit 1)"""


def to_proofs(row: Row) -> kernel_proofs.Proofs:
    [proofs] = row
    return () if proofs is None else tuple(to_proof(proof) for proof in proofs)


def columns_of(proofs: kernel_proofs.SessionProofs, org_id: UUID | None = None) -> dict[str, object]:
    """Return the parameters NAMES. `org_id`: the organization of the session's application."""
    seen = kernel_proofs.in_session(proofs, org_id)
    if not seen:
        return dict.fromkeys(NAMES) | {"fresh": True}
    return {
        "proofs": Jsonb([to_json(proof) for proof in kernel_proofs.every_proof(proofs)]),
        "strength": kernel_proofs.session_strength(seen).value,
        "restricted_to": kernel_proofs.restriction_of(proofs),
        "authenticated_at": kernel_proofs.proved_at(seen),
        "fresh": kernel_proofs.is_fresh(seen),
    }


def to_json(proof: kernel_proofs.Proof) -> dict[str, object]:
    """Return the proof as it is stored. Values that are the default are left out."""
    stored: dict[str, object] = {"method": proof.method and proof.method.value, "at": proof.at.isoformat()}
    if proof.provider is not None:
        stored["provider"] = proof.provider
    if not proof.is_fresh:
        stored["fresh"] = False
    if proof.passkey is not None:
        stored["passkey"] = str(proof.passkey)
    if not proof.is_own:
        ids = {"connection": proof.connection, "org": proof.org, "login": proof.login}
        times = {"until": proof.until, "vouched_at": proof.vouched_at}
        stored |= {name: str(value) for name, value in ids.items() if value is not None}
        stored |= {name: value.isoformat() for name, value in times.items() if value is not None}
    return stored | {flag: True for flag in _FLAGS if getattr(proof, flag)}


def to_proof(stored: Mapping[str, Any]) -> kernel_proofs.Proof:
    # A later release may have stored a method that is not known here.
    return kernel_proofs.Proof(
        _METHODS.get(stored["method"]),
        datetime.fromisoformat(stored["at"]),
        stored.get("provider"),
        stored.get("fresh", True),
        *(stored.get(flag, False) for flag in _FLAGS),
        *((_of_passkey(stored), *_of_connection(stored)) if "org" in stored else (_of_passkey(stored),)),
    )


def _of_passkey(stored: Mapping[str, Any]) -> UUID | None:
    return UUID(stored["passkey"]) if "passkey" in stored else None


def _of_connection(stored: Mapping[str, Any]) -> tuple[UUID | None, UUID, datetime | None, UUID | None, datetime | None]:
    connection, login = stored.get("connection"), stored.get("login")
    until, vouched_at = (stored.get(name) and datetime.fromisoformat(stored[name]) for name in ("until", "vouched_at"))
    return connection and UUID(connection), UUID(stored["org"]), until, login and UUID(login), vouched_at
