"""The pages behind an opened set-up link. Its reader prepares every part, and an admin applies it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from quart import Blueprint, Response

from core.authentication import browser
from core.federation.connections.model.presets import PRESETS
from core.kernel.callers import SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import Refusal
from core.kernel.values import Domain
from core.setup import connection, links, opening, proposals, renewal
from entrypoints.http import kit
from entrypoints.http.api.eventing.siem import SiemRequest
from entrypoints.http.api.federation.connections.connections import own_endpoints
from entrypoints.http.api.tenancy.domains import DomainRequest
from entrypoints.http.base.context import app_context
from entrypoints.http.pages.eventing.siem import PROVIDERS
from entrypoints.http.pages.form_pages import refused_page
from entrypoints.http.pages.form_values import to_model
from entrypoints.http.pages.setup.opening import FOREIGN, STEPS_PATH

routes = Blueprint("setup_step_pages", __name__)

REFUSED: Final = "A value is not valid, and the page gives the reason."
DOMAIN_FIELDS: Final = {"form_token": "The form token of the page.", "proposed_domain": "The proposed domain."}
SIEM_FIELDS: Final = {
    "form_token": "The form token of the page.",
    "provider": "The format: `http`, `splunk_hec` or `datadog`.",
    "endpoint_url": "The complete URL that receives the entries.",
    "token": "The token of the SIEM.",
}
NOT_OPEN: Final = "No set-up link is open in this browser."
ANSWERS: Final = {303: "Saved. The browser is redirected to the steps.", 400: REFUSED, 401: NOT_OPEN, 403: FOREIGN}


async def read_setup_form() -> dict[str, str]:
    """Return the fields in a form that our page made for this link."""
    form = await kit.read_form()
    browser.check_form_token(kit.cookies.SETUP.read() or "", form.get("form_token", ""))
    return form


async def steps_values(part: SetupPart | None = None) -> dict[str, Any]:
    """Return the values for the page with the steps. `part` is the refused part."""
    details, design = (
        await proposals.load(kit.ports(), kit.setup_reader()),
        await opening.load_design(kit.ports(), kit.setup_reader().org_id),
    )
    domain, proposed = details.proposals.get(SetupPart.DOMAIN), details.proposals.get(SetupPart.CONNECTION)
    document = None if proposed is None else proposed.document
    product = None if document is None else PRESETS.get(document.preset or "")
    protocol = None if document is None else ConnectionProtocol(document.protocol or "")
    return {
        "form_token": browser.form_token(kit.cookies.SETUP.read() or ""),
        "design": design,
        "link": details.link,
        "proposals": details.proposals,
        "part_problems": await connection.find_problems(kit.ports(), details.proposals.values()),
        "domains": [] if domain is None else list(zip(domain.document.domains, proposals.claims_of(domain), strict=True)),
        "scim_url": f"{app_context().base_url}/scim/v2",
        "path": STEPS_PATH,
        "failed_part": part,
        "failed_domain": None,
        "renewed": await renewal.load(kit.ports(), details.link),
        "siem_providers": PROVIDERS,
        "products": [(slug, each.name) for slug, each in PRESETS.items()],
        "chosen": product,
        "steps": None if product is None or protocol is None else product.protocols[protocol],
        "endpoints": None if document is None or protocol is None else own_endpoints(UUID(document.connection_id), protocol),
        "typed": {} if document is None else {**asdict(document), "client_secret": "", "private_key": ""},
        "wrong": None,
        "test_problem": None,
        "is_saved": False,
        "is_prepared": all(each in details.proposals and details.proposals[each].is_ready for each in details.link.parts),
        "scripted": True,
    }


async def refused_steps(refusal: Refusal, part: SetupPart, **values: Any) -> Response:
    """Return the page with the steps again, with the reason at this part, and the typed values."""
    shown = await steps_values(part)
    return refused_page(refusal, "setup/steps.html", **{**shown, **values, "typed": {**shown["typed"], **values.get("typed", {})}})


PartForm = Callable[[Mapping[str, str]], Awaitable[Response]]


def in_part(
    part: SetupPart, shown: Sequence[str] = (), wrong: str | Callable[[Refusal], str] | None = None
) -> Callable[[PartForm], Callable[[], Awaitable[Response]]]:
    """Decorate a part's form, below `describes_page`: the view gets the fields.

    After a refusal, the steps show the reason at the part, the typed values in the fields `shown`, and the field `wrong`.
    """

    def decorate(view: PartForm) -> Callable[[], Awaitable[Response]]:
        @wraps(view)
        async def run() -> Response:
            form = await read_setup_form()
            try:
                return await view(form)
            except Refusal as refusal:
                typed = {name: kit.trim(form[name]) for name in shown if name in form}
                values = {"typed": typed, "wrong": wrong(refusal) if callable(wrong) else wrong}
                return await refused_steps(refusal, part, failed_domain=form.get("proposed_domain"), **values)

        return run

    return decorate


@routes.get(STEPS_PATH)
@kit.setup_link
@kit.describes_page({200: "The parts of the link and their progress.", 401: NOT_OPEN, 403: FOREIGN})
async def show_steps() -> Response:
    """Show an opened set-up link's parts.

    It shows what this link proposes, and nothing else about the organization.
    """
    return kit.page_response(kit.render("setup/steps.html", problem=None, **await steps_values()))


@routes.post(f"{STEPS_PATH}/domain")
@kit.setup_link
@kit.describes_page(ANSWERS, form=["form_token", "domain"])
@in_part(SetupPart.DOMAIN, shown=["domain"])
async def propose_domain(form: Mapping[str, str]) -> Response:
    """Propose a domain, beside the domains proposed before.

    It counts when its DNS record was found, and an admin has applied it.
    """
    await proposals.propose_domain(kit.ports(), kit.setup_reader(), Domain(to_model(DomainRequest, form).domain))
    return kit.redirect(STEPS_PATH)


@routes.post(f"{STEPS_PATH}/domain/check")
@kit.setup_link
@kit.describes_page(ANSWERS, form=DOMAIN_FIELDS)
@in_part(SetupPart.DOMAIN)
async def check_domain(form: Mapping[str, str]) -> Response:
    """Look up a proposed domain's DNS record.

    An admin can apply the domains when all their records were found.
    """
    await proposals.check_domain(kit.ports(), kit.setup_reader(), form.get("proposed_domain", ""))
    return kit.redirect(STEPS_PATH)


@routes.post(f"{STEPS_PATH}/domain/remove")
@kit.setup_link
@kit.describes_page(ANSWERS, form=DOMAIN_FIELDS)
@in_part(SetupPart.DOMAIN)
async def remove_domain(form: Mapping[str, str]) -> Response:
    """Propose a domain no longer.

    All other proposed domains stay. The organization's domains do not change.
    """
    await proposals.remove_domain(kit.ports(), kit.setup_reader(), form.get("proposed_domain", ""))
    return kit.redirect(STEPS_PATH)


@routes.post(f"{STEPS_PATH}/directory")
@kit.setup_link
@kit.describes_page({200: "The SCIM token, which is shown once.", 400: REFUSED, 401: NOT_OPEN, 403: FOREIGN}, form=["form_token"])
@in_part(SetupPart.DIRECTORY)
async def propose_directory(_: Mapping[str, str]) -> Response:
    """Propose a SCIM token, which replaces the token proposed before.

    It is shown only once. It answers only `GET /scim/v2/ServiceProviderConfig` until an admin applies it.
    """
    secret = await proposals.propose_directory(kit.ports(), kit.setup_reader())
    return kit.page_response(kit.render("setup/token.html", secret=secret, **await steps_values()))


@routes.post(f"{STEPS_PATH}/siem")
@kit.setup_link
@kit.describes_page(ANSWERS, form=SIEM_FIELDS)
@in_part(SetupPart.SIEM, shown=["provider", "endpoint_url"])
async def propose_siem(form: Mapping[str, str]) -> Response:
    """Propose a SIEM, which replaces the SIEM proposed before.

    No audit log entry goes there before an admin applies it.
    """
    data = to_model(SiemRequest, form)
    await proposals.propose_forwarding(kit.ports(), kit.setup_reader(), data.provider, data.endpoint_url, data.token)
    return kit.redirect(STEPS_PATH)


@routes.post(f"{STEPS_PATH}/finish")
@kit.setup_link
@kit.describes_page({200: "The link is finished.", 401: NOT_OPEN, 403: FOREIGN}, form=["form_token"])
async def finish() -> Response:
    """Finish a set-up link.

    It ends, and its proposals wait for an admin.
    """
    await read_setup_form()
    values = await steps_values()
    await proposals.finish(kit.ports(), kit.setup_reader())
    return_url = await links.find_return_url(kit.ports(), values["link"])
    host = None if return_url is None else urlsplit(return_url).netloc
    response = kit.page_response(kit.render("setup/finished.html", return_url=return_url, return_host=host, **values))
    kit.cookies.SETUP.clear(response)
    return response
