"""The pages behind an opened set-up link on which its reader prepares a connection, step by step for their product."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quart import Blueprint, Response

from core.federation.connections import checks
from core.federation.connections.model import openid
from core.federation.connections.model.connections import ConnectionProblem
from core.federation.connections.model.presets import PRESETS
from core.federation.connections.model.settings import ConnectionSettingInvalid
from core.kernel.callers import SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import Refusal
from core.setup import connection, testing
from core.setup.connection import ProviderValues
from entrypoints.http import kit
from entrypoints.http.api.federation.saml.configuration import METADATA
from entrypoints.http.pages.federation.connections.provider_redirects import redirect_response
from entrypoints.http.pages.setup import steps
from entrypoints.http.pages.setup.opening import FOREIGN, STEPS_PATH

routes = Blueprint("setup_connection_pages", __name__)

PATH: Final = f"{STEPS_PATH}/connection"
TEST_ANSWERS: Final = {
    200: "The problem that prevents the test, or the page that posts our request to the identity provider.",
    303: "Redirect to the identity provider.",
    400: steps.REFUSED,
    401: steps.NOT_OPEN,
    403: FOREIGN,
    409: "It has no values yet.",
    429: "Too many tests.",
}
SAVED: Final = {**steps.ANSWERS, 200: "The values are saved. The page shows the problems that the check found."}
VALUES: Final = ("issuer", "client_id", "client_secret", "entity_id", "sso_url", "certificate")


@routes.post(PATH)
@kit.setup_link
@kit.describes_page(
    {**steps.ANSWERS, 200: "The page that asks before the values of an earlier choice are deleted."},
    form={
        "form_token": "The form token of the page.",
        "preset": "The product, empty for another one.",
        "protocol": "`oidc` or `saml`.",
        "confirmed": "`yes` deletes the values of an earlier choice.",
    },
)
@steps.in_part(SetupPart.CONNECTION)
async def choose_product(form: Mapping[str, str]) -> Response:
    """Choose the proposed connection's product.

    An earlier choice's values are deleted, after a question.
    """
    preset, protocol = form.get("preset", ""), ConnectionProtocol.OIDC
    if form.get("protocol") == ConnectionProtocol.SAML:
        protocol = ConnectionProtocol.SAML
    if form.get("confirmed") != "yes" and await connection.has_values(kit.ports(), kit.setup_reader()):
        product = PRESETS[preset].name if preset in PRESETS else "another product"
        shown = {**await steps.steps_values(), "preset": preset, "protocol": protocol, "product_name": product}
        return kit.page_response(kit.render("setup/start_again.html", **shown))
    await connection.choose(kit.ports(), kit.setup_reader(), preset, protocol)
    return kit.redirect(STEPS_PATH)


def _wrong_value(refusal: Refusal) -> str:
    return refusal.setting if isinstance(refusal, ConnectionSettingInvalid) else "certificate"


@routes.post(f"{PATH}/values")
@kit.setup_link
@kit.describes_page(SAVED, form=["form_token", *VALUES])
@steps.in_part(SetupPart.CONNECTION, shown=[name for name in VALUES if name != "client_secret"], wrong=_wrong_value)
async def save_values(form: Mapping[str, str]) -> Response:
    """Save the proposed connection's values, and check it.

    The product's console shows these values. An empty client secret keeps the earlier secret.
    """
    typed = {name: form[name] if name == "certificate" else kit.trim(form.get(name, "")) for name in VALUES if name in form}
    await connection.save(kit.ports(), kit.setup_reader(), ProviderValues(**typed))
    return await _saved(await connection.check_saved(kit.ports(), kit.setup_reader(), kit.app_context().base_url))


async def _saved(problems: Sequence[ConnectionProblem]) -> Response:
    """Return the redirect to the steps, or the page with the problems in the values, which are saved."""
    return await _show(is_saved=True) if problems else kit.redirect(STEPS_PATH)


async def _show(**values: Any) -> Response:
    """Return the page with the steps, which has the problems that the last check found."""
    return kit.page_response(kit.render("setup/steps.html", problem=None, **{**await steps.steps_values(), **values}))


@routes.post(f"{PATH}/metadata")
@kit.setup_link
@kit.describes_page(
    {**SAVED, 409: "It is no connection with SAML.", 429: "Too many fetches."},
    form=["form_token", "metadata", "metadata_url"],
)
@steps.in_part(SetupPart.CONNECTION, shown=["metadata_url", "metadata"], wrong="metadata_url")
async def import_metadata(form: Mapping[str, str]) -> Response:
    """Take the proposed connection's values from SAML metadata.

    They are pasted or read from a file, or fetched from their address.
    """
    text, url = form.get("metadata", ""), kit.trim(form.get("metadata_url", ""))
    return await _saved(await connection.import_metadata(kit.ports(), kit.setup_reader(), text, url))


@routes.get(f"{PATH}/metadata")
@kit.setup_link
@kit.describes({200: "An EntityDescriptor with our SPSSODescriptor."}, content_type=METADATA)
@kit.refuses(400, 401, 409)
async def own_metadata() -> Response:
    """Return our SAML metadata for the proposed connection's identity provider.

    Their address answers from the time when an admin applies the connection.
    """
    document = await connection.own_metadata(kit.ports(), kit.setup_reader(), kit.app_context().base_url)
    return Response(document, 200, content_type=METADATA)


@routes.post(f"{PATH}/key")
@kit.setup_link
@kit.describes_page({**steps.ANSWERS, 409: "It is no connection with SAML."}, form=["form_token"])
@steps.in_part(SetupPart.CONNECTION)
async def create_key(_: Mapping[str, str]) -> Response:
    """Create our key for the proposed connection with SAML.

    It signs our requests, and decrypts assertions. The connection keeps it when an admin applies it.
    """
    await connection.create_key(kit.ports(), kit.setup_reader())
    return kit.redirect(STEPS_PATH)


@routes.post(f"{PATH}/check")
@kit.setup_link
@kit.describes_page(
    {
        200: "The problems of the connection.",
        400: steps.REFUSED,
        401: steps.NOT_OPEN,
        403: FOREIGN,
        409: "It has no values yet.",
        429: "Too many checks.",
    },
    form=["form_token"],
)
@steps.in_part(SetupPart.CONNECTION)
async def check_connection(_: Mapping[str, str]) -> Response:
    """Check the proposed connection.

    With OpenID Connect, the provider's metadata and keys are fetched, and our credentials are tried there. With SAML, the certificates are
    checked, and the values are compared with the metadata, if they have an address.
    """
    await connection.check(kit.ports(), kit.setup_reader(), kit.app_context().base_url)
    return await _show()


@routes.get(f"{PATH}/test")
@kit.setup_link
@kit.describes_page(TEST_ANSWERS, changes_state=True)
async def start_connection_test() -> Response:
    """Begin a test sign-in at the proposed connection.

    It signs no user in, and looks no account up. The result is shown in this browser alone, and is not stored.
    """
    return await begin_test(SetupPart.CONNECTION)


async def begin_test(part: SetupPart) -> Response:
    """Return the response that takes the browser to the identity provider, or the page with the problem that prevents the test."""
    try:
        redirect = await testing.begin(kit.ports(), kit.setup_reader(), part, kit.cookies.browser_id(), kit.app_context().base_url)
    except (openid.OpenIdAnswerRefused, openid.OpenIdProviderUnreachable) as problem:
        return await _show(test_problem=checks.describe(problem))
    except Refusal as refusal:
        return await steps.refused_steps(refusal, part)
    return redirect_response(redirect)
