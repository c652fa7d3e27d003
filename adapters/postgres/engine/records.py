"""Records: a dataclass and its columns, tied once. The select list, the row reader, insert and update come from the record."""

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Generic, LiteralString, TypeVar, get_args

from adapters.postgres.engine.statements import Row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Convert = Callable[..., object]

_OF_FROZEN: Final = ("__init__", "__setattr__", "__delattr__")  # a frozen dataclass's slow methods


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field's column: its SQL, and how to convert values that are read and written. Null is None, and is not converted."""

    sql: LiteralString | None = None  # None: the field's name in the record's table
    read: Convert | None = None
    write: Convert | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns for a field that is stored in several. `read` gets a row with these columns, and `values` returns them by name."""

    sql: LiteralString
    width: int
    read: Callable[[Row], object]
    values: Callable[..., dict[str, object]] | None = None


Description = LiteralString | Convert | Column | Columns | None


class Record(Generic[T]):
    """A dataclass, and for every field the column with its name in the table with this alias.

    A keyword argument describes a field that differs. A string is its SQL, and a function converts the value that was
    read. A `Column` has the SQL and this function, and the conversion for writing. `Columns` are several columns, and
    come last in the row. With None, the field has no column, and keeps its default.
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
        selected: dict[str, LiteralString] = {name: column.sql or f"{alias}.{name}" for name, column in self._columns.items()}
        self.columns: LiteralString = ", ".join([*selected.values(), *(part.sql for part in self._parts.values())])
        # Fields from other tables, or with an expression, are only read.
        own_names = {name: own for name, each in selected.items() if (own := self._own_name(each)).isidentifier()}
        self.width = len(self._columns) + sum(part.width for part in self._parts.values())
        # A function that reads a row, which must have all columns.
        self.read: Callable[[Row], T] = self._compile_read(kind, defaults)
        # A function that returns the values for the table's columns, by column name. Tuples are stored as arrays.
        self.values: Callable[[T], dict[str, object]] = self._compile_values(kind, own_names)

    # The code for reading and writing is generated, like a dataclass's methods, because every request reads and writes
    # records.

    def _compile_read(self, kind: type[T], defaults: dict[str, object]) -> Callable[[Row], T]:
        names: dict[str, Any] = {"kind": kind, "defaults": defaults}
        values = {name: f"defaults[{name!r}]" for name in defaults}
        for index, (name, column) in enumerate(self._columns.items()):
            names[f"read_{name}"] = column.read
            value = f"row[{index}]"
            values[name] = value if column.read is None else f"None if {value} is None else read_{name}({value})"
        start = len(self._columns)
        for name, part in self._parts.items():
            names[f"read_{name}"] = part.read
            values[name] = f"read_{name}(row[{start} : {start + part.width}])"
            start += part.width
        # A frozen dataclass's constructor takes five times as long. An instance of a subclass that is not frozen gets the fields, and then
        # becomes an instance of the class itself.
        if hasattr(kind, "__post_init__"):
            raise TypeError(f"{kind.__name__} has a __post_init__, which no reading of a row calls")
        names["blank"] = type(kind.__name__, (kind,), {"__slots__": (), **{name: getattr(object, name) for name in _OF_FROZEN}})
        targets, sources = ", ".join(f"record.{name}" for name in values), ", ".join(values.values())
        body = f"""
def read(row):
    record = blank()
    {targets}, = {sources},
    record.__class__ = kind
    return record"""
        exec(body, names)  # noqa: S102  (field names and numbers)
        read: Callable[[Row], T] = names["read"]
        return read

    def _compile_values(self, kind: type[T], own_names: dict[str, str]) -> Callable[[T], dict[str, object]]:
        names: dict[str, object] = {}
        items: list[str] = []
        for field in fields(kind):
            name, part = field.name, self._parts.get(field.name)
            if name in own_names:
                types = get_args(field.type) if isinstance(field.type, UnionType) else (field.type,)
                is_never_tuple = all(isinstance(each, type) and not issubclass(each, tuple) for each in types)
                value = f"record.{name}" if is_never_tuple else f"(list(value) if isinstance(value := record.{name}, tuple) else value)"
                if (write := self._columns[name].write) is not None:
                    names[f"write_{name}"] = write
                    value = f"None if record.{name} is None else write_{name}({value})"
                items.append(f"{own_names[name]!r}: {value}")
            elif part is not None and part.values and part.sql.startswith(f"{self._alias}."):
                names[f"values_{name}"] = part.values
                items.append(f"**values_{name}(record.{name})")
        values: Callable[[T], dict[str, object]] = eval(f"lambda record: {{{', '.join(items)}}}", names)  # noqa: S307  (names of fields)
        return values

    def if_any(self, key: str) -> Callable[[Row], T | None]:
        """Return a reader for outer joins.

        The reader returns None if the column for the field `key` is null, so choose a field that never is null.
        """
        index = [*self._columns].index(key)
        read = self.read
        return lambda row: None if row[index] is None else read(row)

    def insert(self, table: LiteralString, *further: LiteralString, source: LiteralString | None = None) -> LiteralString:
        """Return the statement that inserts `values`, and the parameters for further columns with the same names.

        `source` is a query's `from` or `where`, and the record is inserted if the query has a row.
        """
        names = [*self._stored, *further]
        parameters = ", ".join(f"%({name})s" for name in names)
        row = f"values ({parameters})" if source is None else f"select {parameters} {source}"
        return f"insert into {table} ({', '.join(names)}) {row}"

    def assignments(self, *, without: Collection[str]) -> LiteralString:
        """Return an update's assignments that set all columns to `values`, except the columns `without`."""
        return ", ".join(f"{name} = %({name})s" for name in self._stored if name not in without)

    def overwrites(self, *, without: Collection[str]) -> LiteralString:
        """Return the `on conflict do update` assignments that overwrite all columns, except the columns `without`."""
        return ", ".join(f"{name} = excluded.{name}" for name in self._stored if name not in without)

    @cached_property
    def _stored(self) -> list[LiteralString]:
        names = [self._own_name(column) for column in self.columns.split(", ")]
        # A field's SQL can have ", " as well.
        if len(names) != self.width or not all(name.isidentifier() for name in names):
            raise TypeError(f"only columns of the table can be stored, and not all of these are: {self.columns}")
        return names

    def _own_name(self, column: LiteralString) -> LiteralString:
        return column.removeprefix(f"{self._alias}.")

    def as_field(self, *, if_any: str | None = None) -> Columns:
        """Return these columns for use as a single field in another record. `if_any`: the field is None if this field's column is null."""
        if if_any is None:
            return Columns(self.columns, self.width, self.read, self.values)
        return Columns(self.columns, self.width, self.if_any(if_any), self._values_if_any)

    def _values_if_any(self, record: T | None) -> dict[str, object]:
        return dict.fromkeys(self._stored) if record is None else self.values(record)
