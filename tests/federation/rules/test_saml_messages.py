"""Rules for requested authentication contexts and names.

Sources: SAML core sections 3.3.2.2.1 and 3.4.1.1.
"""

from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import ContextComparison, NameId, RequestedContext, choose_context_class
from tests.tables import table

CLASSES = "urn:oasis:names:tc:SAML:2.0:ac:classes:"
PROTECTED = "PasswordProtectedTransport"


@table(
    ("comparison", "classes", "expected"),
    [
        ("exact", [PROTECTED], PROTECTED),
        ("exact", ["Password"], "Password"),
        ("exact", ["unspecified"], "unspecified"),
        ("exact", ["X509", "Password", PROTECTED], "Password"),  # in the service's order
        ("exact", ["X509"], None),
        ("exact", ["X509", "Kerberos"], None),
        ("exact", [], None),  # such as declarations
        ("minimum", [PROTECTED], PROTECTED),
        ("minimum", ["Password"], PROTECTED),
        ("minimum", ["unspecified"], PROTECTED),
        ("minimum", ["X509", "Password"], PROTECTED),
        ("minimum", ["X509"], None),
        ("maximum", [PROTECTED], PROTECTED),
        ("maximum", ["Password"], "Password"),
        ("maximum", ["unspecified"], "unspecified"),
        ("maximum", ["Kerberos"], None),
        ("better", ["unspecified"], PROTECTED),
        ("better", ["Password"], PROTECTED),
        ("better", [PROTECTED], None),
        ("better", ["X509"], None),
    ],
)
def test_the_context_class_of_a_sign_in_with_a_password_follows_the_request(
    comparison: str, classes: list[str], expected: str | None
) -> None:
    requested = RequestedContext(comparison=ContextComparison(comparison), classes=tuple(CLASSES + name for name in classes))
    assert choose_context_class(requested) == (None if expected is None else CLASSES + expected)


def test_a_name_without_a_format_matches_every_format() -> None:
    ours = NameId("ada@example.com", NameIdFormat.EMAIL)
    assert NameId("ada@example.com", NameIdFormat.UNSPECIFIED).matches(ours)
    assert not NameId("ada@example.com", NameIdFormat.PERSISTENT).matches(ours)
    assert not NameId("eve@example.com", NameIdFormat.EMAIL).matches(ours)
