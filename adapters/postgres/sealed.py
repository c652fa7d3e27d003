"""Every column whose values are sealed, and how they come under a new key (security.md L-1)."""

from dataclasses import dataclass
from typing import Final, LiteralString

from adapters.postgres.driver import Connection
from adapters.postgres.statements import Repository
from ports.crypto import Place, Vault


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """Where sealed values are. `read` returns the row's name and the value, in order of names, after %(after)s."""

    table: str
    column: str
    read: LiteralString
    write: LiteralString

    def place(self, row: str) -> Place:
        return Place(self.table, row, self.column)


SEALED: Final = (
    SealedColumn(
        "signing_keys",
        "private_key",
        "select kid, private_key from signing_keys where kid > %(after)s order by kid limit %(limit)s for update",
        "update signing_keys set private_key = %(value)s where kid = %(row)s",
    ),
    SealedColumn(
        "mails",
        "token",
        "select id::text, token from mails where token is not null and id::text > %(after)s order by id::text limit %(limit)s for update",
        "update mails set token = %(value)s where id = %(row)s::uuid",
    ),
)


class Sealed(Repository):
    """ports.storage.Sealed."""

    __slots__ = ("_vault",)

    def __init__(self, connection: Connection, vault: Vault) -> None:
        super().__init__(connection)
        self._vault = vault

    async def renew(self, column: int, after: str, limit: int) -> tuple[int, str | None]:
        where = SEALED[column]
        rows: list[tuple[str, bytes]] = await self._all(lambda row: (row[0], row[1]), where.read, after=after, limit=limit)
        renewed = 0
        for row, value in rows:
            if not self._vault.is_current(value):
                place = where.place(row)
                await self._run(where.write, row=row, value=self._vault.seal(self._vault.open(value, place), place))
                renewed += 1
        return renewed, rows[-1][0] if len(rows) == limit else None

    @property
    def columns(self) -> int:
        return len(SEALED)
