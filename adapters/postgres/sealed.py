"""Every column whose values are sealed, and how they come under a new key (security.md L-1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres import mails, signing_keys
from adapters.postgres.driver import Connection
from adapters.postgres.statements import Repository
from core.housekeeping import Sealed as SealedKind
from ports.crypto import Place, Vault


@dataclass(frozen=True, slots=True)
class Column:
    """Where sealed values are. `read` returns the row's name and the value, in order of names, after %(after)s."""

    place: Callable[[str], Place]
    read: LiteralString
    write: LiteralString


COLUMNS: Final[Mapping[SealedKind, Column]] = {
    SealedKind.SIGNING_KEYS: Column(
        signing_keys.place,
        "select kid, private_key from signing_keys where kid > %(after)s order by kid limit %(limit)s for update",
        "update signing_keys set private_key = %(value)s where kid = %(row)s",
    ),
    SealedKind.MAIL_TOKENS: Column(
        lambda row: mails.place(UUID(row)),
        "select id::text, token from mails where token is not null and id::text > %(after)s order by id::text limit %(limit)s for update",
        "update mails set token = %(value)s where id = %(row)s::uuid",
    ),
}


class Sealed(Repository):
    """ports.storage.Sealed."""

    __slots__ = ("_vault",)

    def __init__(self, connection: Connection, vault: Vault) -> None:
        super().__init__(connection)
        self._vault = vault

    async def renew(self, kind: SealedKind, after: str, limit: int) -> tuple[int, str | None]:
        column = COLUMNS[kind]
        rows: list[tuple[str, bytes]] = await self._all(lambda row: (row[0], row[1]), column.read, after=after, limit=limit)
        renewed = 0
        for row, value in rows:
            if not self._vault.is_current(value):
                place = column.place(row)
                await self._run(column.write, row=row, value=self._vault.seal(self._vault.open(value, place), place))
                renewed += 1
        return renewed, rows[-1][0] if len(rows) == limit else None
