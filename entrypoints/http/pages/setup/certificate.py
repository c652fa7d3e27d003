"""The pages behind an opened set-up link on which its reader renews a connection's certificates."""

from collections.abc import Mapping
from typing import Final

from quart import Blueprint, Response

from core.kernel.callers import SetupPart
from core.setup import renewal
from entrypoints.http import kit
from entrypoints.http.pages.setup import connection, steps
from entrypoints.http.pages.setup.opening import STEPS_PATH

routes = Blueprint("setup_certificate_pages", __name__)

PATH: Final = f"{STEPS_PATH}/certificate"
PRESENT: Final = "The connection was removed, or has this certificate already."
FIELDS: Final = {"form_token": "The form token of the page.", "new_certificate": "The certificates, in PEM."}
METADATA_FIELDS: Final = {
    "form_token": "The form token of the page.",
    "new_metadata": "The SAML metadata of the identity provider.",
    "new_metadata_url": "Their address. Only without `new_metadata`.",
}


@routes.post(PATH)
@kit.setup_link
@kit.describes_page({**steps.ANSWERS, 409: PRESENT}, form=FIELDS)
@steps.in_part(SetupPart.CERTIFICATE, shown=["new_certificate"], wrong="new_certificate")
async def propose_certificate(form: Mapping[str, str]) -> Response:
    """Propose certificates for an existing connection.

    They replace the certificates proposed before.

    No user signs in with them before an admin applies them.
    """
    await renewal.propose(kit.ports(), kit.setup_reader(), form.get("new_certificate", ""))
    return kit.redirect(STEPS_PATH)


@routes.post(f"{PATH}/metadata")
@kit.setup_link
@kit.describes_page(
    {**steps.ANSWERS, 409: PRESENT, 429: "Too many fetches."},
    form=METADATA_FIELDS,
)
@steps.in_part(SetupPart.CERTIFICATE, shown=["new_metadata_url", "new_metadata"], wrong="new_metadata_url")
async def import_certificates(form: Mapping[str, str]) -> Response:
    """Propose the certificates in SAML metadata that an existing connection does not have yet.

    The metadata are pasted or read from a file, or fetched from their address. Only their certificates are taken.
    """
    await renewal.import_metadata(kit.ports(), kit.setup_reader(), form.get("new_metadata", ""), kit.trim(form.get("new_metadata_url", "")))
    return kit.redirect(STEPS_PATH)


@routes.get(f"{PATH}/test")
@kit.setup_link
@kit.describes_page(connection.TEST_ANSWERS, changes_state=True)
async def start_certificate_test() -> Response:
    """Begin a test sign-in at an existing connection with the proposed certificates.

    The identity provider must sign its response with a proposed certificate. The test signs no user in, and looks no
    account up. The result is shown in this browser alone, and is not stored.
    """
    return await connection.begin_test(SetupPart.CERTIFICATE)
