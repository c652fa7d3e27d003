"""The names of received attributes in the sign-in log, for answers that are refused after their signature was verified."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.saml_responses import SamlFault
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import DOMAIN
from tests.federation.connections.saml.saml_case import SamlCase, arrive, connect, read_request
from tests.support.browser import FakeBrowser
from tests.support.builders import Api, run_sql
from tests.support.saml import format_instant
from tests.support.saml.identity_provider import GCM, attribute
from tests.support.services import add_service
from tests.support.tenants import Tenant

NAMES: Final = ["email", "groups", "name"]
BEFORE_SIGNATURE: Final = frozenset(
    {SamlFault.MALFORMED, SamlFault.TOO_LARGE, SamlFault.ASSERTION_COUNT, SamlFault.DUPLICATE_ID, SamlFault.DECRYPTION}
    | {SamlFault.SIGNATURE_PLACE, SamlFault.SIGNATURE_SHAPE, SamlFault.SIGNATURE_ALGORITHM, SamlFault.SIGNATURE_WRONG, SamlFault.UNSIGNED}
    | {SamlFault.SIGNATURE_DISPUTED}
)
AUDIENCE: Final = "<saml:AudienceRestriction><saml:Audience>x</saml:Audience></saml:AudienceRestriction>"
OUTSIDE: Final = [("email", ["eve@elsewhere.example"]), ("groups", []), ("name", [])]
# The changes to a response to this request. Faults by our own rules have the refusal's name.
CASES: Final[dict[str, Callable[[SamlCase, str], dict[str, Any]]]] = {
    SamlFault.ISSUER: lambda _, __: {"issuer": "https://elsewhere.example"},
    SamlFault.DESTINATION: lambda _, id_: {"response_attributes": f'Destination="x" InResponseTo="{id_}"'},
    SamlFault.CONDITION: lambda saml_case, id_: {"restrictions": f"{saml_case.content(id_).restrictions}<saml:Condition/>"},
    SamlFault.AUDIENCE: lambda _, __: {"restrictions": AUDIENCE},
    SamlFault.TIME: lambda _, __: {"conditions": 'NotOnOrAfter="2020-01-01T00:00:00Z"'},
    SamlFault.RECIPIENT: lambda _, id_: {"bearer": f'Recipient="x" InResponseTo="{id_}" NotOnOrAfter="2999-01-01T00:00:00Z"'},
    SamlFault.IN_RESPONSE_TO: lambda saml_case, id_: {"bearer": saml_case.content(id_).bearer.replace(id_, "_other")},
    SamlFault.AUTHN_STATEMENT: lambda _, __: {"statement": "", "encryption": GCM},
    SamlFault.NAME_ID: lambda _, __: {"name_id": "<saml:EncryptedID/>"},
    SamlFault.ATTRIBUTES: lambda _, __: {"values": attribute("name", "<a/><b/>") + attribute("", "x")},
    SamlFault.USED: lambda _, __: {"assertion_id": "_first"},
    "subject_missing": lambda _, __: {"name_id": "", "signed": ("response",)},
    "address_outside": lambda _, __: {"name_id": "<saml:NameID>another</saml:NameID>", "attributes": OUTSIDE},
}


@pytest.mark.slow
async def test_the_log_has_the_names_for_each_fault_after_the_signature(
    app: QuartTrio, api: Api, acme: Tenant, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    saml_case = await connect(ports, acme.org)
    await run_sql(pool, DOMAIN, acme.org, "example.com")
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")

    async def sign_in(browser: FakeBrowser, by: SamlCase, case: Callable[[SamlCase, str], dict[str, Any]]) -> int:
        clock.advance(timedelta(minutes=1))  # per minute, the log names ten failures
        id_ = read_request(await browser.open(f"/auth/connections/{saml_case.connection.id}/start?next=/app")).get("ID")
        content = {"attributes": [(name, ["x"]) for name in NAMES], **case(by, id_)}
        return (await arrive(browser, saml_case.acs, by.respond(id_, **content))).status

    known, ada = FakeBrowser(app), [("email", ["ada@example.com"])]
    assert await sign_in(known, saml_case, lambda _, __: {"assertion_id": "_first", "attributes": ada}) == 303
    stranger = replace(saml_case, provider=replace(saml_case.provider, certificate=saml_case.provider.attacker))
    answers = {fault: await sign_in(FakeBrowser(app), saml_case, case) for fault, case in CASES.items()}
    answers[SamlFault.SIGNATURE_WRONG] = await sign_in(FakeBrowser(app), stranger, lambda _, __: {})
    assert {status for status in answers.values() if status not in (400, 403)} == set(), answers

    # An application asks for a new sign-in, and the identity provider does not ask the user.
    await add_service(pool, acme.org, "shop")
    [(client_id, [callback])] = await run_sql(pool, "select client_id, redirect_uris from services")
    fields = urlencode({"client_id": str(client_id), "redirect_uri": callback, "response_type": "code", "prompt": "login"})
    request = read_request(await known.open(f"/auth/connections/{saml_case.connection.id}/start?{fields}"))
    assert request.get("ForceAuthn") == "true"
    statement = f'<saml:AuthnStatement AuthnInstant="{format_instant(clock.now() - timedelta(hours=1))}"/>'
    await arrive(known, saml_case.acs, saml_case.respond(request.get("ID"), statement=statement))

    await acme.sign_in("owner")
    listed = await api.get(f"{acme.path}/sign-ins?connection=okta&success=false&limit=100", token=acme.token("owner"))
    received = {each["fault"]: each["received"] for each in listed.json["sign_ins"]}
    assert received.pop(SamlFault.SIGNATURE_WRONG) == [], "nothing that was not verified"
    assert received == dict.fromkeys([*CASES, SamlFault.AUTHN_INSTANT], NAMES)
    assert {*SamlFault} - BEFORE_SIGNATURE <= received.keys()
