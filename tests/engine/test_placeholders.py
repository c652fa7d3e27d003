"""Named placeholders become positional placeholders."""

import pytest

from adapters.postgres.engine.queued import to_positional
from tests.tables import table


def test_each_name_gets_one_number() -> None:
    assert to_positional("select %(b)s, %(a)s::int, %(b)s")[:2] == (b"select $1, $2::int, $1", ("b", "a"))


def test_two_percent_signs_stand_for_one() -> None:
    assert to_positional("select 5 %% 2 where 'x%%' like %(text)s || '%%'")[:2] == (b"select 5 % 2 where 'x%' like $1 || '%'", ("text",))


@table("text", ["select 5 % 2", "select %s", "select %(name)", "select %(name)d", "select '%'"])
def test_any_other_percent_sign_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write %%"):
        to_positional(text)
