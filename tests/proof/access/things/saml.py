"""SAML for the services in the access tests: configuration, sign-ons and logouts."""

import json
from dataclasses import asdict
from typing import Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.flow.model import FlowTarget, new_flow
from core.federation.saml.model.configuration import NameIdFormat, SamlConfiguration
from core.federation.saml.model.messages import NameId, SamlStatus
from core.federation.saml.model.sign_on import LOGOUT_TTL, STATE_TTL, LogoutInitiator, SamlLogout, SamlSession, SamlSignOn
from core.kernel.causes import SYSTEM
from core.kernel.values import digest, new_id, new_secret
from ports import Ports
from tests.proof.access.belongings import begin_in_browser
from tests.support.builders import run_sql

FORMAT: Final = NameIdFormat.PERSISTENT


def saml_of(slug: str, service_slug: str) -> SamlConfiguration:
    """Return this service's SAML configuration."""
    return SamlConfiguration(
        enabled=True,
        entity_id=f"https://{service_slug}.{slug}.example/metadata",
        acs_url=f"https://{service_slug}.{slug}.example/acs",
        slo_url=f"https://{service_slug}.{slug}.example/slo",
        name_id_format=FORMAT,
        attribute_mapping={"email": f"mail of {slug}"},
        sign_response=False,
    )


async def sign_on_with_saml(ports: Ports, pool: Pool, slug: str, org: UUID, service: UUID, user: Account) -> str:
    """Add a SAML session, a pending sign-on and a logout in progress.

    Return the sign-on's state.
    """
    now, name, state = ports.clock.now(), f"{slug}-{user.email.partition('@')[0]}", new_secret()
    cookie = digest(await begin_in_browser(ports, user))
    [[session]] = await run_sql(pool, "select id from sessions where browser_hash = %s", cookie)
    sign_on = SamlSignOn(
        request_id=f"_sign-on-{name}",
        relay_state=f"where {name} goes",
        force_authn=False,
        is_passive=False,
        status=SamlStatus.NO_PASSIVE,
        subject=NameId(f"subject {name}", FORMAT),
        context_class=f"class of {name}",
    )
    flow = new_flow(
        now,
        FlowTarget.SAML,
        json.dumps(asdict(sign_on)),
        digest(f"browser of {name}"),
        secret_hash=digest(state),
        org_id=org,
        service_id=service,
    )
    logout = SamlLogout(
        id=new_id(),
        browser_hash=digest(f"browser of {name} leaving"),
        initiator=LogoutInitiator(
            org_id=org,
            service_id=service,
            request_id=f"_logout-{name}",
            relay_state=f"where {name} leaves for",
            after=f"/after/{name}",
        ),
        created_at=now,
        expires_at=now + LOGOUT_TTL,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.saml_sign_ons.begin(flow, digest(f"_sign-on-{name}"))
        await tx.saml_sign_ons.complete_sign_in(digest(state), user.id, session, digest(f"ticket of {name}"), now - STATE_TTL, now)
        known = NameId(await tx.saml_sign_ons.persistent_name_id(org, service, user.id, f"_name-{name}", now), FORMAT)
        for name_id in (NameId(f"former {name}", FORMAT), known):
            index = tx.saml_sign_ons.add_session(session, org, service, f"_index-{name}", name_id, now)
        assert await tx.saml_logouts.add(logout)
        stored_index = await index
        assert stored_index is not None
        part = SamlSession(org_id=org, service_id=service, session_index=stored_index, name_id=known, former_names=(f"leaving {name}",))
        assert await tx.saml_logouts.add_request(logout.id, f"_asked-{name}", user.id, part, None)
        await tx.saml_logouts.next_request(logout.id, now)
    return state
