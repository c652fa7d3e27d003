"""One host, one spelling: all request fields for URLs or hosts get an international host (decision 393)."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model import profiles
from core.applications.model.users import AccessSettings
from core.federation.connections.model.settings import SamlSettings
from core.federation.saml.model import configuration as saml
from core.kernel.outbound import parse_target
from core.kernel.values import Domain, new_id
from core.programs.model.api_resources import parse_identifier
from core.programs.model.credentials import parse_trust
from core.setup.model.links import parse_return_url
from core.tenancy.model.settings import parse_host, parse_logo
from tests.support.openapi import operations
from tests.support.services import add_service
from tests.support.tenants import Tenant

HOST: Final = "xn--bcher-kva.example"
TYPED: Final = "https://Bücher.Example:443/A"
CANONICAL: Final = f"https://{HOST}/A"
AS_TYPED: Final = f"https://{HOST}:443/A"  # except for the host
ISSUER: Final = "https://id.example.com"

FIELDS: Final[dict[str, Callable[[], str | None]]] = {
    "url": lambda: parse_target(TYPED),
    "endpoint_url": lambda: parse_target(TYPED),
    "new_metadata_url": lambda: parse_target(TYPED),
    "return_url": lambda: parse_return_url(TYPED),
    "logo_url": lambda: parse_logo(TYPED),
    "launch_url": lambda: AccessSettings(launch_url=TYPED).validated().launch_url,
    "acs_url": lambda: saml.validate(replace(saml.NOT_CONFIGURED, acs_url=TYPED)).acs_url,
    "sso_url": lambda: SamlSettings(sso_url=TYPED).check().sso_url,
    "metadata_url": lambda: SamlSettings(metadata_url=TYPED).check().metadata_url,
    "slo_url": lambda: saml.validate(replace(saml.NOT_CONFIGURED, slo_url=TYPED)).slo_url,
    "slo_response_url": lambda: saml.validate(replace(saml.NOT_CONFIGURED, slo_response_url=TYPED)).slo_response_url,
    "identifier": lambda: parse_identifier(TYPED, new_id(), ISSUER).canonical,
    **{name: lambda name=name: profiles._PARSERS[name](TYPED) for name in ("picture", "profile", "website")},  # type: ignore[misc]
}
SERVICE_FIELDS: Final = {
    "redirect_uris": [AS_TYPED],
    "post_logout_redirect_uris": [AS_TYPED],
    "device_activation_uri": CANONICAL,
    "backchannel_logout_uri": CANONICAL,
    "jwks_uri": CANONICAL,
    "initiate_login_uri": CANONICAL,
    **dict.fromkeys(("logo_uri", "policy_uri", "tos_uri"), CANONICAL),
}
HOSTS: Final[dict[str, Callable[[str], str]]] = {"host": parse_host, "domain": Domain.parse}
# Hosts in requests are compared, not stored (test_international_hosts.py). The payment provider gets the last two as they are.
OTHERS: Final = {"redirect_uri", "request_uri", "target_link_uri", "success_url", "cancel_url"}
_NAME: Final = re.compile(r"(?:.*_)?ur[il]s?|picture|profile|website|issuer|identifier|host|domain")


def test_an_issuer_stays_as_typed_except_for_its_host() -> None:
    """Tokens must have exactly this `iss`."""
    assert parse_trust(TYPED, "audience", "repo:org/name:ref:main", ISSUER).issuer == AS_TYPED


def test_every_field_is_in_this_file() -> None:
    names = {
        name
        for _, _, operation in operations()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        for name in content["schema"].get("properties", {})
        if _NAME.fullmatch(name)
    }
    assert names == {*FIELDS, *SERVICE_FIELDS, *HOSTS, *OTHERS, "issuer"}


def test_a_url_is_stored_in_its_canonical_form() -> None:
    assert {name: parse() for name, parse in FIELDS.items()} == dict.fromkeys(FIELDS, CANONICAL)
    assert {name: parse("Bücher.Example") for name, parse in HOSTS.items()} == dict.fromkeys(HOSTS, HOST)


@pytest.mark.slow
async def test_the_uris_of_an_application_are_stored_in_one_spelling(acme: Tenant, pool: Pool) -> None:
    await add_service(pool, acme.org, "shop")
    changes = {name: [TYPED] if isinstance(stored, list) else TYPED for name, stored in SERVICE_FIELDS.items()}
    answer = await acme.api.patch(f"/api/organizations/{acme.slug}/services/shop", changes, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    assert {name: answer.json[name] for name in SERVICE_FIELDS} == SERVICE_FIELDS


async def test_the_endpoints_of_saml_are_stored_in_one_spelling(acme: Tenant, pool: Pool) -> None:
    await add_service(pool, acme.org, "shop")
    body = {"enabled": True, "entity_id": "urn:shop", "acs_url": TYPED, "slo_url": TYPED}
    path = f"/api/organizations/{acme.slug}/services/shop/saml"
    answer = await acme.api.post(path, body, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    saved = (await acme.api.get(path, token=acme.token("owner"))).json
    assert (saved["acs_url"], saved["slo_url"]) == (CANONICAL, CANONICAL)
