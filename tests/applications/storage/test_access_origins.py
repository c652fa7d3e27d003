"""The enrollment origins in SQL match the enumeration."""

from adapters.postgres.applications.service_access import ASSIGNED, ORIGINS
from core.applications.model.users import EnrollmentOrigin


def test_sql_orders_origins_as_the_rules_do() -> None:
    listed = ", ".join(f"'{origin.value}'" for origin in EnrollmentOrigin)
    assert f"array[{listed}]" == ORIGINS


def test_sql_knows_which_origins_are_assignments() -> None:
    listed = ", ".join(f"'{origin.value}'" for origin in EnrollmentOrigin if origin.is_assigned)
    assert f"({listed})" == ASSIGNED
