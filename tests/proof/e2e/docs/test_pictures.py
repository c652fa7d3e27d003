"""The documentation's pictures: `./run pictures` takes them from a service with demo data, and writes docs/assets."""

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
from PIL import Image, ImageDraw

from tests import ROOT
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.pages.test_console import DEMO, sign_in
from tests.proof.e2e.process import CHEAP_HASHES, gatehouse

ASSETS: Final = ROOT / "docs" / "assets"
LARGEST: Final = 100_000  # bytes
COLORS: Final = 128
SHOP: Final = f"{DEMO}/applications/web-shop"
# The file, who sees the page, and its path.
PICTURES: Final = (
    ("overview", "owner", DEMO),
    ("application", "owner", SHOP),
    ("saml", "owner", f"{SHOP}/saml"),
    ("members", "owner", f"{DEMO}/members"),
    ("directory", "owner", f"{DEMO}/directory"),
    ("webhooks", "owner", f"{DEMO}/webhooks"),
    ("audit-log", "owner", f"{DEMO}/audit-log"),
    ("branding", "owner", f"{DEMO}/branding"),
    ("identity-providers", "platform_owner", "/app/platform/connections"),
)
# Nothing asks these addresses. Their hosts give the providers their names.
PROVIDERS: Final = {
    f"SSO_{provider}_{name}_URL": f"https://{host}/{name.lower()}"
    for provider, host in (("WEBSUITE", "accounts.google.com"), ("OFFICESUITE", "login.microsoftonline.com"), ("CODEHOST", "github.com"))
    for name in ("AUTHORIZE", "TOKEN", "USERINFO", "EMAILS" if provider == "CODEHOST" else "JWKS")
} | {"SSO_WEBSUITE_ISSUER": "https://accounts.google.com", "SSO_OFFICESUITE_ISSUER": "https://login.microsoftonline.com"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("GATEHOUSE_PICTURES" not in os.environ, reason="only ./run pictures takes pictures"),
]


def draw_logo(place: Path, color: str) -> Path:
    """Save a logo: a ring in a color."""
    image = Image.new("RGBA", (256, 256), (0, 0, 0, 0))
    ImageDraw.Draw(image).ellipse((24, 24, 232, 232), outline=color, width=48)
    image.save(place)
    return place


def upload(browser: Browser, address: str, file: Path) -> None:
    browser.open(address)
    browser.find("input[type=file]")[0].send_keys(str(file))
    browser.press("Upload")


def save(name: str, screenshot: bytes) -> None:
    """Save a screenshot with few colors, which pages with the same design have anyway."""
    output = BytesIO()
    with Image.open(BytesIO(screenshot)) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(output, "PNG", optimize=True)
    assert len(output.getvalue()) <= LARGEST, (name, len(output.getvalue()))
    (ASSETS / f"{name}.png").write_bytes(output.getvalue())


def test_the_pictures_show_the_present_console(service: Start, own_database: dict[str, str], home: Path, browser: Browser) -> None:
    running = service(**own_database, **PROVIDERS).start()
    filled = gatehouse(home, "demo", "--json", SSO_BASE_URL=running.address, **CHEAP_HASHES, **own_database)
    people, signed_in = json.loads(filled.stdout), ""
    for name, role, path in PICTURES:
        if role != signed_in:
            sign_in(browser, running, people[role])
            signed_in = role
        if name == PICTURES[0][0]:
            upload(browser, f"{running.address}{DEMO}/branding", draw_logo(home / "acme.png", "#0b5d66"))
            upload(browser, f"{running.address}{SHOP}", draw_logo(home / "shop.png", "#b4541a"))
        browser.open(f"{running.address}{path}")
        save(name, browser.screenshot())
