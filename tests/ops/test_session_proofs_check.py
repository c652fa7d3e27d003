"""The check that session proofs are read through a view."""

from ops.checks.session_proofs import find_faults

MODULE = """
class Session:
    proofs: Proofs

class Flow:
    proofs: Proofs

class Approval:
    proofs: SessionProofs

strength_of(every_proof(session.proofs))
strength_of(cast("Proofs", session.proofs))
SQL = "select s.proofs from sessions s"
"""


def test_each_way_around_the_view_is_found() -> None:
    lines = [int(fault.split(":")[1]) for fault in find_faults("adapters/postgres/example.py", MODULE)]
    assert sorted(lines) == [3, 11, 12, 13]


def test_the_stored_columns_are_read_in_their_module() -> None:
    faults = list(find_faults("adapters/postgres/authentication/sign_in_proofs.py", MODULE))
    assert [fault.split(":")[1] for fault in faults] == ["3", "12"]
