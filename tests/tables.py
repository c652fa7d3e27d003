"""Tables: a single test runs all rows, and reports every row that fails."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

# What `pytest.fail` and `pytest.raises` raise is no `Exception`.
FAILURES = (Exception, pytest.fail.Exception)
PARAM = type(pytest.param())
MAX_NAME = 100  # how many characters of a value its row name has

Test = Callable[..., Any]
Ids = Iterable[Any] | Callable[[Any], Any]


def table(names: str | tuple[str, ...], rows: Iterable[Any], *, ids: Ids | None = None) -> Callable[[Test], Test]:
    """Run the test for all rows as a single test. The arguments are the same as for `pytest.mark.parametrize`.

    All rows have the same fixtures, so the test must leave them as it finds them.
    """
    columns = names if isinstance(names, tuple) else tuple(name.strip() for name in names.split(","))
    cases = _cases(columns, rows, ids)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        if not cases or len(fixtures) + len(columns) != len(signature.parameters):
            raise pytest.UsageError(f"{test.__qualname__} needs rows, and an argument for each of {columns}")

        @wraps(test)
        def run(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failures = []
            for name, values in cases:
                try:
                    test(**fixtures, **values)
                except FAILURES as failure:
                    failures.append((name, failure))
            _report(failures)

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failures = []
            for name, values in cases:
                try:
                    await test(**fixtures, **values)
                except FAILURES as failure:
                    failures.append((name, failure))
            _report(failures)

        whole: Any = run_async if inspect.iscoroutinefunction(test) else run
        whole.__signature__ = signature.replace(parameters=fixtures)
        return whole  # type: ignore[no-any-return]

    return decorate


def _cases(columns: tuple[str, ...], rows: Iterable[Any], ids: Ids | None) -> list[tuple[str, dict[str, Any]]]:
    """Return every row's name and values."""
    given = None if ids is None or callable(ids) else list(ids)
    cases = []
    for number, row in enumerate(rows):
        id_ = given[number] if given else None
        if isinstance(row, PARAM):
            values, id_ = row.values, row.id or id_
        else:
            values = row if len(columns) > 1 else (row,)
        words = ids if callable(ids) else repr
        cases.append((str(id_ or ", ".join(str(words(value))[:MAX_NAME] for value in values)), dict(zip(columns, values, strict=True))))
    return cases


def _report(failures: Sequence[tuple[str, BaseException]]) -> None:
    """Raise the rows' failures with the row names."""
    __tracebackhide__ = True
    for name, failure in failures:
        failure.add_note(f"row: {name}")
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        raise BaseExceptionGroup("rows fail: " + "; ".join(name for name, _ in failures), [failure for _, failure in failures])
