"""Test tables: a single test runs all rows, and its failure names every row that fails."""

from pathlib import Path
from typing import Any

import pytest

from tests.tables import table


@table("number", [1, 2, 3])
@table(("text", "size"), [("a", 1), pytest.param("bc", 2, id="two letters")])
def test_tables_can_be_combined(number: int, text: str, size: int, tmp_path: Path) -> None:
    assert number * text
    assert len(text) == size
    assert tmp_path.is_dir()


def test_all_rows_run_and_each_failure_is_named() -> None:
    seen = []

    @table("value", [1, 2, 3, 4])
    def check(value: int) -> None:
        seen.append(value)
        assert value % 2
        with pytest.raises(ValueError, match="three"):
            raise ValueError("three" if value == 3 else "another")

    with pytest.raises(BaseExceptionGroup, match="rows fail: 1; 2; 4") as raised:
        check()
    assert seen == [1, 2, 3, 4]
    assert [failure.__notes__ for failure in raised.value.exceptions] == [["row: 1"], ["row: 2"], ["row: 4"]]


async def test_rows_of_an_asynchronous_test_are_awaited() -> None:
    @table("value", [1, 2], ids=["first", "second"])
    async def check(value: int) -> None:
        if value == 2:
            pytest.fail("no")

    with pytest.raises(pytest.fail.Exception, match="no") as raised:
        await check()
    assert raised.value.__notes__ == ["row: second"]


def test_an_empty_table_and_a_missing_argument_are_refused() -> None:
    def check(value: Any) -> None: ...

    for wrong in (table("value", []), table("other", [1])):
        with pytest.raises(pytest.UsageError):
            wrong(check)
