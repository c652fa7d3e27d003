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
from entrypoints.http.api.setup.links import APPLY as API_OF_PART
from entrypoints.http.api.setup.links import ONE as API_OF_ONE
from entrypoints.http.api.setup.links import PATH as API
from entrypoints.http.api.setup.links import SetupLinkRequest, SetupPartRequest, part_of_path, url_of
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.consequences import Question, accepts_answer, asks, sentence
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, secret_page, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, answers_with, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.form_values import to_model, to_number, to_optional

routes = Blueprint("setup_link_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/setup-links"
ONE: Final = f"{LIST}/<setup_link_id>"
PART: Final = "part:"  # begins the checkbox names
FIELDS: Final[Fields] = {
    SetupRecipientMissing: "recipient",
    SetupPartsMissing: "parts",
    SetupConnectionMissing: "connection",
    SetupLinkTooLong: "days",
    SetupReturnUrlInvalid: "return_url",
}


def _path(rest: object = "") -> str:
    return organization_path(f"/setup-links{rest and '/'}{rest}")


async def _list_values(form: Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "links": await links.list_own(ports(), acting_member()),
        "now": ports().clock.now(),
        "parts": list(SetupPart),
        "kinds": list(SetupLinkKind),
        "most_days": ports().policy.setup_link_days,
        "connections": [(each.slug, each.name) for each in await connections.list_own(ports(), acting_member()) if each.has_certificates],
        "typed": form or {"kind": SetupLinkKind.MAILED.value, "days": str(links.usual_days(ports()))},
    }


def _chosen(form: Form) -> list[str]:
    return [name.removeprefix(PART) for name in form if name.startswith(PART)]


@serves_form(routes, LIST, f"GET {API}", f"POST {API}")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}", answers=answers_with("The address of the link."))
@refuses(429)
@once(LIST, "Open set-up links", "The address was shown once. If you didn't copy it, end the link in the list and create another one.")
@on_refusal("setup/links.html", _list_values, FIELDS)
async def create(org_slug: str, form: Form) -> Response:
    """Create a set-up link.

    Its address is shown only once.
    """
    if not _chosen(form):
        raise SetupPartsMissing
    optional = dict.fromkeys(("recipient", "connection", "return_url"), to_optional)
    data = to_model(SetupLinkRequest, form, {"parts": lambda _: _chosen(form), "days": to_number, **optional})
    link, secret = await links.create(ports_once(), acting_member(), data.build())
    advice = "It opens in one browser, within five minutes. Lead your customer's browser to it now."
    if link.recipient is not None:
        advice = f"We've sent it to {link.recipient}. Only a code that is sent there opens it."
    return await secret_page("Set-up link created", {link.name: url_of(secret)}, advice=advice, done=("Watch its progress", _path(link.id)))


async def _values(_: Form, setup_link_id: UUID, **__: object) -> dict[str, Any]:
    details = await links.find(ports(), acting_member(), setup_link_id)
    agent = details.link.opened_agent
    return {
        "path": _path(setup_link_id),
        "list_path": _path(),
        "products": {slug: preset.name for slug, preset in PRESETS.items()},
        "link": details.link,
        "browser": None if agent is None else ports().user_agents.parse(agent),
        "connection_path": await _path_of_connection(details.proposals.get(SetupPart.CONNECTION)),
        "proposals": details.proposals,
        "part_problems": await connection.find_problems(ports(), details.proposals.values()),
        "waits": any(each.applied_at is None for each in details.proposals.values()),
        "now": ports().clock.now(),
    }


async def _path_of_connection(proposal: SetupProposal | None) -> str | None:
    """Return the path to the connection that was applied, or None, also if it was removed since."""
    if proposal is None or proposal.applied_at is None:
        return None
    own = {str(each.id): each.slug for each in await connections.list_own(ports(), acting_member())}
    slug = own.get(proposal.document.connection_id or "")
    return None if slug is None else organization_path(f"/connections/{slug}")


@routes.get(ONE)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API_OF_ONE}", f"POST {API_OF_PART}", f"DELETE {API_OF_ONE}")
async def show_link(org_slug: str, setup_link_id: UUID) -> Response:
    """Show a set-up link with its progress."""
    return await console_page("setup/link.html", **await _values({}, setup_link_id))


@routes.post(f"{ONE}/parts/<setup_part>/apply")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_PART}")
@refuses(409)
@on_refusal("setup/link.html", _values)
async def apply(org_slug: str, setup_link_id: UUID, setup_part: str, form: Form) -> Response:
    """Apply a set-up link's proposal for a part."""
    data = to_model(SetupPartRequest, form)
    await applying.apply(ports(), acting_member(), setup_link_id, part_of_path(setup_part), data.changed_at)
    return redirect_with_notice("setup-part-applied", _path(setup_link_id))


async def _end(setup_link_id: UUID) -> Question:
    link = (await links.find(ports(), acting_member(), setup_link_id)).link
    is_live = link.is_live(ports().clock.now())
    stops = sentence("{} stops working at once, also in the browser that opened it.", link.name)
    return Question(
        verb="End" if is_live else "Delete the proposals of",
        target=link.name,
        consequences=(*([stops] if is_live else []), "Its proposals are deleted. What you applied stays."),
        button="End link" if is_live else "Delete proposals",
        keep="Keep link" if is_live else "Keep proposals",
        back=(link.name, _path(link.id)),
    )


@asks(routes, f"{ONE}/end")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts_answer(f"DELETE {API_OF_ONE}", _end)
async def end(org_slug: str, setup_link_id: UUID, form: Form) -> Response:
    """End a set-up link, and delete its proposals."""
    await links.end(ports(), acting_member(), setup_link_id)
    return redirect_with_notice("setup-link-ended", _path())
