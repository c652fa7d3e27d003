"""Records: a dataclass and its columns, tied once. The select list, the reader of a row, insert and update come from it."""

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, LiteralString, TypeVar

from adapters.postgres.engine.statements import Row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Convert = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The column of a field: its SQL, and conversions of what is read and written. Null is None, and is not converted."""

    sql: LiteralString | None = None  # None: the field's name in the table of the record
    read: Convert | None = None
    write: Convert | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a field that is stored in several. `read` gets a row of them, and `values` returns them by name."""

    sql: LiteralString
    width: int
    read: Callable[[Row], object]
    values: Callable[..., dict[str, object]] | None = None


Description = LiteralString | Convert | Column | Columns | None


class Record(Generic[T]):
    """A dataclass, and for each field the column with its name in the table with this alias.

    Keyword arguments describe the fields that differ: by SQL, by the function that converts what is
    read, by a `Column`, or by `Columns`, which come last in a row. None leaves a field at its default.
    """

    def __init__(self, kind: type[T], alias: LiteralString, /, **special: Description) -> None:
        if unknown := special.keys() - {field.name for field in fields(kind)}:
            raise TypeError(f"{kind.__name__} has no field {unknown}")
        self._alias = alias
        self._columns: dict[str, Column] = {}
        self._parts: dict[str, Columns] = {}
        defaults: dict[str, object] = {}
        for field in fields(kind):
            match special.get(field.name, Column()):
                case Columns() as part:
                    self._parts[field.name] = part
                case Column() as column:
                    self._columns[field.name] = column
                case str() as sql:
                    self._columns[field.name] = Column(sql=sql)
                case None:
                    if field.default is MISSING:
                        raise TypeError(f"{kind.__name__}.{field.name} has no default")
                    defaults[field.name] = field.default
                case convert:
                    self._columns[field.name] = Column(read=convert)
        self._sql = {name: column.sql or f"{alias}.{name}" for name, column in self._columns.items()}
        self.columns: LiteralString = ", ".join([*self._sql.values(), *(part.sql for part in self._parts.values())])
        # A row is read in four steps that take a third less time than a call with keywords: its columns, their conversions, its parts,
        # and all of it in the order of the fields.
        self._count = self.width = len(self._columns)
        self._reads = [(index, column.read) for index, column in enumerate(self._columns.values()) if column.read is not None]
        self._slices: list[tuple[Callable[[Row], object], slice]] = []
        for part in self._parts.values():
            self._slices.append((part.read, slice(self.width, self.width + part.width)))
            self.width += part.width
        names = [*self._columns, *self._parts, *defaults]
        self._defaults = [*defaults.values()]
        self._make: Callable[..., T] = kind
        self._keywords = names if any(field.kw_only for field in fields(kind)) else None
        self._in_order = itemgetter(*(names.index(field.name) for field in fields(kind)))

    def read(self, row: Row) -> T:
        """Return the record in the first columns of the row."""
        values: list[object] = [*row[: self._count]]
        for index, convert in self._reads:
            if (value := values[index]) is not None:
                values[index] = convert(value)
        for read, part in self._slices:
            values.append(read(row[part]))
        values += self._defaults
        if self._keywords is not None:
            return self._make(**dict(zip(self._keywords, values, strict=True)))
        return self._make(*self._in_order(values))

    def read_if_any(self, row: Row) -> T | None:
        """Return the record, or None if its first column is null, as an outer join returns it."""
        return None if row[0] is None else self.read(row)

    def values(self, record: T) -> dict[str, object]:
        """Return the stored values by the names of their columns. Tuples are stored as arrays."""
        stored: dict[str, object] = {}
        for name, column in self._columns.items():
            value = getattr(record, name)
            if isinstance(value, tuple):
                value = list(value)
            stored[self._own_name(self._sql[name])] = value if value is None or column.write is None else column.write(value)
        for name, part in self._parts.items():
            if part.values is not None:
                stored |= part.values(getattr(record, name))
        return stored

    def insert(self, table: LiteralString, *further: LiteralString) -> LiteralString:
        """Return the statement that inserts `values`, and the parameters for further columns of the same names."""
        names = [*self._stored(), *further]
        return f"insert into {table} ({', '.join(names)}) values ({', '.join(f'%({name})s' for name in names)})"

    def assignments(self, *, without: Collection[str]) -> LiteralString:
        """Return the assignments of an update that sets all columns to `values`, except the columns `without`."""
        return ", ".join(f"{name} = %({name})s" for name in self._stored() if name not in without)

    def _stored(self) -> list[LiteralString]:
        names = [self._own_name(column) for column in self.columns.split(", ")]
        if not all(name.isidentifier() for name in names):
            raise TypeError(f"only columns of the table can be stored, and not all of these are: {self.columns}")
        return names

    def _own_name(self, column: LiteralString) -> LiteralString:
        return column.removeprefix(f"{self._alias}.")

    def as_field(self, *, if_any: bool = False) -> Columns:
        """Return the columns as those of one field of another record. `if_any`: the field is None if the first column is null."""
        return Columns(self.columns, self.width, self.read_if_any if if_any else self.read, self.values)
