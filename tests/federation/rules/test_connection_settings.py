"""A connection's settings and mapping."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from core.federation.connections.model.asserted import ReceivedClaims, SubjectMissing, map_claims, saml_subject
from core.federation.connections.model.settings import (
    ClaimMapping,
    ConnectionSettingInvalid,
    OidcSettings,
    SamlSettings,
    SsoBinding,
    read_settings,
    to_document,
)
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.values import Email
from tests.support.connections import make_connection
from tests.tables import table

OIDC = OidcSettings(issuer="https://acme.okta.example", client_id="gatehouse")
SAML = SamlSettings(entity_id="http://adfs.example/trust", sso_url="https://adfs.example/sso")
TIME = datetime(2026, 11, 27, tzinfo=UTC)


@table(
    ("settings", "setting", "changes"),
    [
        *((OIDC, "issuer", {"issuer": issuer}) for issuer in ("acme", "http://acme.example", "https://a.example/#", "https://a@b.example")),
        *((OIDC, "issuer", {"issuer": f"https://a.example/{query}"}) for query in ("?", "?tenant=acme")),
        (OIDC, "issuer", {"issuer": "https://LOGIN.microsoftonline.com/Common/v2.0"}),
        *(
            (OIDC, "issuer", {"issuer": f"https://login.microsoftonline.com/{tenant}/v2.0"})
            for tenant in ("common", "organizations", "consumers", "{tenantid}")
        ),
        (OIDC, "issuer", {"issuer": "https://a.example/" + "a" * 1024}),
        *((OIDC, "client_id", {"client_id": client_id}) for client_id in (" a", "a\n", "a" * 1025)),
        *((OIDC, "scopes", {"scopes": scopes}) for scopes in (("a b",), ("",), ("a", "a"), tuple("abcdefghijklmnopqrstu"), ('"',), ("é",))),
        *((SAML, "entity_id", {"entity_id": entity_id}) for entity_id in (" a", "a" * 1025)),
        *((SAML, "sso_url", {"sso_url": url}) for url in ("http://adfs.example/sso", "javascript:alert(1)")),
        (SAML, "metadata_url", {"metadata_url": "http://adfs.example/metadata"}),
        (SAML, "name_id_format", {"name_id_format": NameIdFormat.TRANSIENT}),
        *(
            (SAML, "subject", {"subject": subject})
            for subject in ("", "mail", "Email", "given_name", "preferred_username", "urn:oid:0.9.2342.19200300.100.1.3", "a" * 257)
        ),
        (SAML, "subject", {"subject": "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress"}),
    ],
)
def test_invalid_settings_are_refused(settings: OidcSettings | SamlSettings, setting: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConnectionSettingInvalid) as refusal:
        replace(settings, **changes).check()
    assert refusal.value.setting == setting


def test_valid_settings_are_kept_in_their_stored_form() -> None:
    with_subject = replace(SAML, subject="objectGUID", name_id_format=NameIdFormat.TRANSIENT)
    for settings in (OIDC, replace(OIDC, issuer="https://Acme.example/"), SAML, with_subject):
        assert settings.check() == settings
    assert replace(SAML, sso_url="https://ADFS.example:443/SSO").check().sso_url == "https://adfs.example/SSO"


def test_stored_settings_of_another_release_are_readable() -> None:
    post = replace(SAML, sso_binding=SsoBinding.POST)
    for settings in (OIDC, post):
        document = to_document(settings)
        assert read_settings(settings.protocol, {**document, "later": 1}) == settings
        assert read_settings(settings.protocol, {name: value for name, value in document.items() if name != "trusts_email"}) == settings
    mapping = ClaimMapping(groups="groups")
    assert ClaimMapping.read({**mapping.document, "later": "x"}) == mapping


def test_a_person_is_mapped_from_the_claims() -> None:
    mapping = ClaimMapping(email="mail", name="displayName", groups="memberOf")
    connection = make_connection(uuid4(), mapping=mapping)
    values = {
        "mail": ["Ada@Example.com", "second@example.com"],
        "displayName": ["Ada"],
        "family_name": ["a\nb"],
        "memberOf": ["x", "y", "x"],
    }
    received = ReceivedClaims(subject="1", values=values, has_second_factor=True, authenticated_at=TIME, ends_at=TIME)
    person = map_claims(connection, received)
    assert (person.connection_id, person.org_id, person.subject) == (connection.id, connection.org_id, "1")
    assert (person.email, person.is_email_verified) == (Email("ada@example.com"), False)
    assert (person.profile.name, person.profile.given_name, person.profile.family_name) == ("Ada", None, None)
    assert person.groups == frozenset({"x", "y"})
    assert not person.has_second_factor
    assert (person.authenticated_at, person.ends_at, person.claim_names) == (TIME, TIME, ("displayName", "family_name", "mail", "memberOf"))


def test_missing_groups_differ_from_no_groups() -> None:
    connection = make_connection(uuid4(), mapping=ClaimMapping(groups="groups"))
    for values, groups in (({}, None), ({"groups": []}, frozenset())):
        person = map_claims(connection, ReceivedClaims(subject="1", values=values))
        assert (person.groups, person.email) == (groups, None)
    assert map_claims(make_connection(uuid4()), ReceivedClaims(subject="1", values={"groups": ["x"]})).groups is None


def test_trust_in_addresses_and_second_factors_is_a_choice() -> None:
    connection = make_connection(uuid4())
    for trusts in (False, True):
        settings = replace(OIDC, trusts_email=trusts, trusts_second_factor=trusts)
        person = map_claims(replace(connection, settings=settings), ReceivedClaims(subject="1", values={}, has_second_factor=True))
        assert (person.is_email_verified, person.has_second_factor) == (trusts, trusts)
        for word in (True, False):
            received = ReceivedClaims(subject="1", values={}, is_email_verified=word)
            assert map_claims(replace(connection, settings=settings), received).is_email_verified is word, "the provider says so"


@table(
    ("subject", "name_id", "values", "expected"),
    [
        (None, ("Ada", NameIdFormat.PERSISTENT), {}, "Ada"),
        (None, ("Ada", None), {}, "Ada"),
        (None, ("Ada", NameIdFormat.TRANSIENT), {}, None),
        (None, ("", None), {}, None),
        (None, ("a" * 257, None), {}, None),
        (None, None, {"id": ["1"]}, None),
        ("id", ("Ada", NameIdFormat.TRANSIENT), {"id": ["1"]}, "1"),
        ("id", ("Ada", None), {}, None),
        ("id", ("Ada", None), {"id": ["1", "2"]}, None),
    ],
)
def test_the_subject_is_the_chosen_one_or_none(
    subject: str | None, name_id: tuple[str, str | None] | None, values: dict[str, list[str]], expected: str | None
) -> None:
    settings = replace(SAML, subject=subject)
    if expected is not None:
        assert saml_subject(settings, name_id, values) == expected
        return
    with pytest.raises(SubjectMissing):
        saml_subject(settings, name_id, values)
