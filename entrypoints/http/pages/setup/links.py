"""The pages for set-up links for admins: create them, watch their progress, apply their proposals."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.federation.connections import connections
from core.federation.connections.model.presets import PRESETS
from core.kernel.callers import SetupPart
from core.kernel.roles import Capability
from core.setup import applying, connection, links
from core.setup.model.links import (
    SetupConnectionMissing,
    SetupLinkKind,
    SetupLinkTooLong,
    SetupPartsMissing,
    SetupProposal,
    SetupRecipientMissing,
    SetupReturnUrlInvalid,
)
from entrypoints.http import kit
from entrypoints.http.api.setup.links import APPLY as API_OF_PART
from entrypoints.http.api.setup.links import ONE as API_OF_ONE
from entrypoints.http.api.setup.links import PATH as API
from entrypoints.http.api.setup.links import SetupLinkRequest, SetupPartRequest, part_of_path, url_of
from entrypoints.http.pages import consequences, console, console_forms, form_values

routes = Blueprint("setup_link_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/setup-links"
ONE: Final = f"{LIST}/<setup_link_id>"
PART: Final = "part:"  # begins the checkbox names
FIELDS: Final[console_forms.Fields] = {
    SetupRecipientMissing: "recipient",
    SetupPartsMissing: "parts",
    SetupConnectionMissing: "connection",
    SetupLinkTooLong: "days",
    SetupReturnUrlInvalid: "return_url",
}


def _path(rest: object = "") -> str:
    return console.organization_path(f"/setup-links{rest and '/'}{rest}")


async def _list_values(form: console_forms.Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "links": await links.list_own(kit.ports(), kit.acting_member()),
        "now": kit.ports().clock.now(),
        "parts": list(SetupPart),
        "kinds": list(SetupLinkKind),
        "most_days": kit.ports().policy.setup_link_days,
        "connections": [
            (each.slug, each.name) for each in await connections.list_own(kit.ports(), kit.acting_member()) if each.has_certificates
        ],
        "typed": form or {"kind": SetupLinkKind.MAILED.value, "days": str(links.usual_days(kit.ports()))},
    }


def _chosen(form: console_forms.Form) -> list[str]:
    return [name.removeprefix(PART) for name in form if name.startswith(PART)]


@console_forms.serves_form(routes, LIST, f"GET {API}", f"POST {API}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}", answers=console_forms.answers_with("The address of the link."))
@kit.refuses(429)
@console_forms.once(
    LIST, "Open set-up links", "The address was shown once. If you didn't copy it, end the link in the list and create another one."
)
@console_forms.on_refusal("setup/links.html", _list_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a set-up link."""
    if not _chosen(form):
        raise SetupPartsMissing
    optional = dict.fromkeys(("recipient", "connection", "return_url"), form_values.to_optional)
    data = form_values.to_model(SetupLinkRequest, form, {"parts": lambda _: _chosen(form), "days": form_values.to_number, **optional})
    link, secret = await links.create(console_forms.ports_once(), kit.acting_member(), data.build())
    advice = "It opens in one browser, within five minutes. Lead your customer's browser to it now."
    if link.recipient is not None:
        advice = f"We've sent it to {link.recipient}. Only a code that is sent there opens it."
    return await console.secret_page(
        "Set-up link created", {link.name: url_of(secret)}, advice=advice, done=("Watch its progress", _path(link.id))
    )


async def _values(_: console_forms.Form, setup_link_id: UUID, **__: object) -> dict[str, Any]:
    details = await links.find(kit.ports(), kit.acting_member(), setup_link_id)
    agent = details.link.opened_agent
    return {
        "path": _path(setup_link_id),
        "list_path": _path(),
        "products": {slug: preset.name for slug, preset in PRESETS.items()},
        "link": details.link,
        "browser": None if agent is None else kit.ports().user_agents.parse(agent),
        "connection_path": await _path_of_connection(details.proposals.get(SetupPart.CONNECTION)),
        "proposals": details.proposals,
        "part_problems": await connection.find_problems(kit.ports(), details.proposals.values()),
        "waits": any(each.applied_at is None for each in details.proposals.values()),
        "now": kit.ports().clock.now(),
    }


async def _path_of_connection(proposal: SetupProposal | None) -> str | None:
    """Return the path to the connection that was applied, or None, also if it was removed since."""
    if proposal is None or proposal.applied_at is None:
        return None
    own = {str(each.id): each.slug for each in await connections.list_own(kit.ports(), kit.acting_member())}
    slug = own.get(proposal.document.connection_id or "")
    return None if slug is None else console.organization_path(f"/connections/{slug}")


@routes.get(ONE)
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API_OF_ONE}", f"POST {API_OF_PART}", f"DELETE {API_OF_ONE}")
async def show_link(org_slug: str, setup_link_id: UUID) -> Response:
    """Show a set-up link with its progress."""
    return await console.console_page("setup/link.html", **await _values({}, setup_link_id))


@routes.post(f"{ONE}/parts/<setup_part>/apply")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_PART}")
@kit.refuses(409)
@console_forms.on_refusal("setup/link.html", _values)
async def apply(org_slug: str, setup_link_id: UUID, setup_part: str, form: console_forms.Form) -> Response:
    """Apply a set-up link's proposal for a part."""
    data = form_values.to_model(SetupPartRequest, form)
    await applying.apply(kit.ports(), kit.acting_member(), setup_link_id, part_of_path(setup_part), data.changed_at)
    return console.redirect_with_notice("setup-part-applied", _path(setup_link_id))


async def _end(setup_link_id: UUID) -> consequences.Question:
    link = (await links.find(kit.ports(), kit.acting_member(), setup_link_id)).link
    is_live = link.is_live(kit.ports().clock.now())
    stops = consequences.sentence("{} stops working at once, also in the browser that opened it.", link.name)
    return consequences.Question(
        verb="End" if is_live else "Delete the proposals of",
        target=link.name,
        consequences=(*([stops] if is_live else []), "Its proposals are deleted. What you applied stays."),
        button="End link" if is_live else "Delete proposals",
        keep="Keep link" if is_live else "Keep proposals",
        back=(link.name, _path(link.id)),
    )


@consequences.asks(routes, f"{ONE}/end")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@consequences.accepts_answer(f"DELETE {API_OF_ONE}", _end)
async def end(org_slug: str, setup_link_id: UUID, form: console_forms.Form) -> Response:
    """End a set-up link, and delete its proposals."""
    await links.end(kit.ports(), kit.acting_member(), setup_link_id)
    return console.redirect_with_notice("setup-link-ended", _path())
