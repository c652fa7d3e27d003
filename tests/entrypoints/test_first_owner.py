"""The first platform owner that a start without a command offers."""

import re

from entrypoints.cli import offer_owner
from tests.tables import table

EMAIL, PASSWORD = "SSO_PLATFORM_OWNER_EMAIL", "SSO_PLATFORM_OWNER_PASSWORD"


def test_each_start_without_settings_offers_an_owner_with_a_new_password() -> None:
    first, second = offer_owner({}), offer_owner({"SSO_DATABASE_URL": ""})
    assert first[EMAIL] == second[EMAIL] == "owner@gatehouse.example"
    assert re.fullmatch(r"[0-9a-f]{20}", first[PASSWORD])
    assert first[PASSWORD] != second[PASSWORD]


@table("setting", ["SSO_DATABASE_URL", EMAIL, PASSWORD])
def test_no_owner_is_offered_if_the_operator_has_set_one(setting: str) -> None:
    assert offer_owner({setting: "given"}) == {}
