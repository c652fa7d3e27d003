"""Responses over SAML. A and B have connections with the same entity id and the same NameID, and A's provider signs what it wants."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from tests.federation.connections.saml import saml_case
from tests.federation.connections.saml.saml_case import SamlCase
from tests.proof.hostile.asserted import REFUSED, Attack, outcome
from tests.proof.hostile.world import World
from tests.support.browser import FakeBrowser
from tests.support.saml.identity_provider import PERSISTENT

RESPONSES: Final[dict[str, tuple[Attack, str]]] = {}
SUBJECT: Final = "7f3a"


async def connect(world: World) -> tuple[SamlCase, SamlCase]:
    """Return the SAML connections of A and B, where the same subject is a member of A and of B."""
    if not world.over_saml:
        for tenant, domain in ((world.a, "a"), (world.b, "b")):
            at = await saml_case.connect(world.ports, tenant.org, "saml")
            await world.set("update connections set state = 'active', first_activated_at = now() where id = %s", at.connection.id)
            await world.link(await world.add(f"saml@{domain}.example", tenant), SUBJECT, at.connection)
            world.over_saml.append(at)
    of_a, of_b = world.over_saml
    return of_a, of_b


async def begin(world: World, browser: FakeBrowser, at: SamlCase) -> str:
    """Begin a sign-in at a connection. Return the request's id."""
    return str(saml_case.read_request(await world.leave(browser, at.connection)).get("ID"))


def refused(attack: Any) -> Any:
    """Put an attack into the table that must be refused."""
    RESPONSES[attack.__name__] = (attack, REFUSED)
    return attack


@refused
async def assertion_for_a_at_the_endpoint_of_b(world: World) -> AsyncIterator[str]:
    of_a, of_b = await connect(world)
    browser = world.browser()
    yield ""
    text = of_a.respond(await begin(world, browser, of_a))
    yield outcome(await saml_case.arrive(browser, of_b.acs, text))
    for changes in ({}, {"signed": ("response",)}, {"signed": ("response", "assertion")}):
        text = of_a.respond(await begin(world, browser, of_b), **changes)
        yield outcome(await saml_case.arrive(browser, of_b.acs, text))


@refused
async def response_that_a_forges_for_b(world: World) -> AsyncIterator[str]:
    """It is right for B, but for its signature."""
    of_a, of_b = await connect(world)
    browser = world.browser()
    forged = SamlCase(world.ports, replace(of_a.provider, certificate=of_a.provider.attacker), of_b.connection)
    yield ""
    for signed in (("assertion",), ("response",), ("response", "assertion"), ()):
        yield outcome(await saml_case.arrive(browser, of_b.acs, forged.respond(await begin(world, browser, of_b), signed=signed)))


@refused
async def request_of_another_browser(world: World) -> AsyncIterator[str]:
    of_a, _ = await connect(world)
    begun, victim = world.browser(), world.browser()
    yield ""
    text = of_a.respond(await begin(world, begun, of_a))
    await begin(world, victim, of_a)
    yield outcome(await saml_case.arrive(victim, of_a.acs, text))


@refused
async def response_without_a_request(world: World) -> AsyncIterator[str]:
    of_a, _ = await connect(world)
    browser = world.browser()
    yield ""
    await begin(world, browser, of_a)
    content = of_a.content("_none")
    texts = {"response_attributes": content.response_attributes, "bearer": content.bearer}
    unasked = {name: text.replace('InResponseTo="_none"', "") for name, text in texts.items()}
    yield outcome(await saml_case.arrive(browser, of_a.acs, of_a.respond("_none", **unasked)))  # type: ignore[arg-type]
    yield outcome(await saml_case.arrive(browser, of_a.acs, of_a.respond("_none")))


@refused
async def transient_name_id(world: World) -> AsyncIterator[str]:
    of_a, _ = await connect(world)
    browser = world.browser()
    yield ""
    name_id = f'<saml:NameID Format="{PERSISTENT.replace("persistent", "transient")}">{SUBJECT}</saml:NameID>'
    yield outcome(await saml_case.arrive(browser, of_a.acs, of_a.respond(await begin(world, browser, of_a), name_id=name_id)))


@refused
async def subject_of_b_at_the_connection_of_a(world: World) -> AsyncIterator[str]:
    of_a, of_b = await connect(world)
    await world.link(await world.add("another@b.example", world.b), "another", of_b.connection)
    browser = world.browser()
    yield ""
    asserted = {"attributes": (("email", ["another@b.example"]),), "name_id": f'<saml:NameID Format="{PERSISTENT}">another</saml:NameID>'}
    yield outcome(await saml_case.arrive(browser, of_a.acs, of_a.respond(await begin(world, browser, of_a), **asserted)))  # type: ignore[arg-type]
