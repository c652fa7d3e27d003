"""The pages behind an opened set-up link on which its reader renews a connection's certificates."""

from collections.abc import Mapping
from typing import Final

from quart import Blueprint, Response

from core.kernel.callers import SetupPart
from core.setup import renewal
from entrypoints.http.base.context import ports, setup_reader
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import setup_link
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.edge.typed_fields import trim
from entrypoints.http.pages.setup.connection import TEST_ANSWERS, begin_test
from entrypoints.http.pages.setup.opening import STEPS_PATH
from entrypoints.http.pages.setup.steps import ANSWERS, in_part

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
@setup_link
@describes_page({**ANSWERS, 409: PRESENT}, form=FIELDS)
@in_part(SetupPart.CERTIFICATE, shown=["new_certificate"], wrong="new_certificate")
async def propose_certificate(form: Mapping[str, str]) -> Response:
    """Propose certificates for an existing connection.

    They replace the certificates proposed before.

    No user signs in with them before an admin applies them.
    """
    await renewal.propose(ports(), setup_reader(), form.get("new_certificate", ""))
    return redirect(STEPS_PATH)


@routes.post(f"{PATH}/metadata")
@setup_link
@describes_page(
    {**ANSWERS, 409: PRESENT, 429: "Too many fetches."},
    form=METADATA_FIELDS,
)
@in_part(SetupPart.CERTIFICATE, shown=["new_metadata_url", "new_metadata"], wrong="new_metadata_url")
async def import_certificates(form: Mapping[str, str]) -> Response:
    """Propose the certificates in SAML metadata that an existing connection does not have yet.

    The metadata are pasted or read from a file, or fetched from their address. Only their certificates are taken.
    """
    await renewal.import_metadata(ports(), setup_reader(), form.get("new_metadata", ""), trim(form.get("new_metadata_url", "")))
    return redirect(STEPS_PATH)


@routes.get(f"{PATH}/test")
@setup_link
@describes_page(TEST_ANSWERS, changes_state=True)
async def start_certificate_test() -> Response:
    """Begin a test sign-in at an existing connection with the proposed certificates.

    The identity provider must sign its response with a proposed certificate. The test signs no user in, and looks no
    account up. The result is shown in this browser alone, and is not stored.
    """
    return await begin_test(SetupPart.CERTIFICATE)
