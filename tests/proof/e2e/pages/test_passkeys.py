"""Passkeys and security keys on our pages, in Chromium with its virtual authenticators."""

from typing import Any, Final

import psycopg
import pytest

from tests.proof.e2e.browser import Browser, name_of
from tests.proof.e2e.conftest import SharedService
from tests.proof.e2e.pages.audits import audit_kept
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_oauth_clients import ADA, PASSWORD
from tests.support.connections.proofs import older_sessions
from tests.support.passkeys.virtual import Authenticator

pytestmark = pytest.mark.slow

SETTINGS: Final = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD, "SSO_RATE_LIMITS": "off"}
EVE: Final = "eve@example.com"
SECURITY: Final = "/app/account/security"
NEW: Final = "/app/account/passkeys/new"
# An authenticator's transport, and whether it keeps passkeys, verifies its user, and syncs. Every two values share a row.
AUTHENTICATORS: Final = [
    ("internal", True, True, True),
    ("internal", False, False, False),
    ("usb", True, True, False),
    ("usb", False, False, True),
    ("hybrid", True, False, True),
    ("hybrid", False, True, False),
]
KEY: Final = {"transport": "usb", "hasResidentKey": False, "hasUserVerification": False, "isUserVerified": False}  # as a plain security key

# Chromium 156 says that it has conditional creation, but with a virtual authenticator, `navigator.credentials.create` with `mediation:
# "conditional"` never ends. Without a passkey, and with the browser's own dialogs, it ends with NotAllowedError.
NEVER: Final = """
const create = navigator.credentials.create.bind(navigator.credentials);
navigator.credentials.create = (options) => options.mediation === "conditional" ? new Promise(() => {}) : create(options);
"""
# The answer from a password manager that was not asked to show or verify the user.
AT_ONCE: Final = """
navigator.credentials.create = async ({ publicKey, mediation }) => {
  if (mediation !== "conditional") throw new Error("not this one");
  const text = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(publicKey.rp.id)));
  const { publicKey: key } = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign"]);
  const point = new Uint8Array(await crypto.subtle.exportKey("raw", key)); // 4, x, y
  const rawId = crypto.getRandomValues(new Uint8Array(32));
  const head = [0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32];
  const cose = [...head, ...point.slice(1, 33), 0x22, 0x58, 32, ...point.slice(33)];
  const data = [...hash, 0x58, 0, 0, 0, 0, ...Array(16).fill(0), 0, 32, ...rawId, ...cose]; // BE, BS and AT; neither UP nor UV
  const encode = (word) => [...new TextEncoder().encode(word)];
  const name = (word) => [0x60 + word.length, ...encode(word)];
  const attestation = [0xa3, ...name("fmt"), ...name("none"), ...name("attStmt"), 0xa0, ...name("authData"), 0x58, data.length, ...data];
  const challenge = text(new Uint8Array(publicKey.challenge));
  const client = encode(JSON.stringify({ type: "webauthn.create", challenge, origin: location.origin, crossOrigin: false }));
  const response = { clientDataJSON: new Uint8Array(client), attestationObject: new Uint8Array(attestation) };
  return { id: text(rawId), rawId, type: "public-key", response: { ...response, getTransports: () => ["internal"] } };
};
"""


def open_sign_in(browser: Browser, running: Service) -> None:
    """Open the sign-in page in a browser without a session."""
    browser.forget()
    browser.open(f"{running.address}/app/sign-in?next={SECURITY}")
    assert browser.heading == "Sign in"


def fill_in(browser: Browser, email: str = ADA) -> None:
    browser.fill("Email address", email)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")


def sign_in(browser: Browser, running: Service, email: str = ADA) -> None:
    open_sign_in(browser, running)
    fill_in(browser, email)


def use_passkey(browser: Browser, running: Service) -> None:
    """Press the button on the sign-in page. Its field proposes nothing: a virtual authenticator would take the first passkey at once."""
    with browser.on_new_pages("PublicKeyCredential.isConditionalMediationAvailable = async () => false;"):
        open_sign_in(browser, running)
        browser.press("Sign in with a passkey")


def forget_keys(shared: SharedService) -> None:
    with psycopg.connect(shared.conninfo) as connection:
        connection.execute("delete from passkeys")
        connection.execute("update users set passkey_count = 0, security_key_count = 0, passkey_second_at = null")


def add_passkey(browser: Browser, running: Service, label: str = "Add a passkey") -> None:
    browser.open(running.address + SECURITY)
    browser.follow(label)
    browser.press(label.replace("Add a", "Create the"))


def take_away(authenticator: Authenticator) -> dict[str, Any]:
    """Remove the only credential from the authenticator, and return it."""
    [credential] = authenticator.credentials()
    authenticator.remove(credential["credentialId"])
    return credential


def complaints(browser: Browser) -> list[str]:
    """Return the console's messages about anything but a refused form's status."""
    return [each for each in browser.complaints() if "the server responded with a status of 401" not in each]


def test_a_passkey_is_added_renamed_and_deleted(running: Service, browser: Browser) -> None:
    sign_in(browser, running)
    browser.keep("security-without-passkeys")
    with browser.authenticator() as authenticator:
        browser.follow("Add a passkey")
        browser.keep("new-passkey")
        browser.press("Create the passkey")
        assert "Passkey added." in browser.text
        [credential] = authenticator.credentials()
        assert (credential["userName"], credential["isResidentCredential"]) == (ADA, True)
        browser.keep("security-with-passkey")
        browser.follow("Add a passkey")
        browser.find("button[data-passkey]")[0].click()
        browser.wait_until(lambda: "already has a passkey" in browser.text)
        browser.keep("new-passkey-refused")
        browser.open(running.address + SECURITY)
        browser.follow("Manage Passkey")
        browser.keep("passkey")
        browser.fill("Name", "<b>Laptop</b>")
        browser.press("Save name")
        browser.follow("Manage <b>Laptop</b>")
        browser.follow("Delete")
        browser.keep("delete-passkey")
        assert "You can still sign in with your password" in browser.text
        browser.press("Delete")
        assert "You have no passkeys yet." in browser.text
        browser.wait_until(lambda: authenticator.credentials() == [])  # the page has signaled it
    assert complaints(browser) == []
    assert audit_kept(browser) == {}


def test_the_sign_in_page_takes_a_passkey_from_its_button_and_from_its_field(
    running: Service, browser: Browser, shared: SharedService
) -> None:
    sign_in(browser, running)
    with browser.authenticator() as authenticator:
        add_passkey(browser, running)
        credential = take_away(authenticator)
        open_sign_in(browser, running)
        browser.keep("sign-in-with-passkeys")
        authenticator.add(credential)
        browser.press("Sign in with a passkey")
        assert "Passkey" in browser.find("#sign-ins")[0].text
        browser.forget()
        with browser.leaving():  # the browser proposes the passkey, and the virtual authenticator takes it at once
            browser.open(f"{running.address}/app/sign-in?next={SECURITY}")
        browser.wait_until(lambda: browser.heading == "Security")
        credential = take_away(authenticator)
        browser.follow("Manage Passkey")
        browser.follow("Delete")
        browser.press("Delete")
        authenticator.add(credential)
        use_passkey(browser, running)
        assert "was deleted" in browser.text
        assert authenticator.credentials() != []  # an undo can restore it
        with psycopg.connect(shared.conninfo) as connection:
            connection.execute("delete from former_passkeys")
        use_passkey(browser, running)
        assert "This passkey is not known here." in browser.text
        browser.keep("sign-in-with-unknown-passkey")
        browser.wait_until(lambda: authenticator.credentials() == [])
        browser.find("button[data-passkey]")[0].click()
        browser.wait_until(lambda: "Nothing was chosen." in browser.text)
        fill_in(browser)
        browser.follow("Not now")
        assert browser.heading == "Security"
    assert complaints(browser) == []
    assert audit_kept(browser) == {}


def test_without_scripts_the_pages_say_what_to_do(running: Service, browser: Browser) -> None:
    sign_in(browser, running)
    browser.let_scripts_run(False)
    try:
        browser.follow("Add a passkey")
        assert "Adding a passkey needs JavaScript." in browser.text
        assert not any(button.is_displayed() for button in browser.find("button[data-passkey]"))
        open_sign_in(browser, running)
        assert "To use a passkey, turn on JavaScript. Or sign in with your password." in browser.text
        [above], [hint] = browser.find("button[type=submit]"), browser.find("noscript p")
        assert hint.rect["y"] - above.rect["y"] - above.rect["height"] >= 8, "they do not touch"
        assert not any(button.is_displayed() for button in browser.find("button[data-passkey]"))
        fill_in(browser)
        assert browser.heading == "Security"
    finally:
        browser.let_scripts_run(True)


def test_the_button_beside_that_of_a_passkey_is_the_primary_one_without_scripts(
    running: Service, browser: Browser, shared: SharedService
) -> None:
    sign_in(browser, running)
    with browser.authenticator():
        add_passkey(browser, running)
    with psycopg.connect(shared.conninfo) as connection:
        connection.execute(older_sessions("3 hours").encode())
    colors = list[set[str]]()
    try:
        for allowed in (True, False):
            browser.let_scripts_run(allowed)
            browser.open(f"{running.address}/app/reauthenticate")
            shown = [button for button in browser.find("main button") if button.is_displayed()]
            assert [name_of(button) for button in shown] == [
                *(["Use a passkey"] if allowed else []),
                "Confirm",
                "Email me a code",
                "Sign out",
            ]
            primary, *others = (button.value_of_css_property("background-color") for button in shown)
            assert primary not in others, "one button is the primary one"
            colors.append({primary})
    finally:
        browser.let_scripts_run(True)
    assert colors[0] == colors[1]


def test_a_security_key_is_the_second_factor(running: Service, browser: Browser) -> None:
    sign_in(browser, running)
    with browser.authenticator(**KEY) as authenticator:
        browser.follow("Add a security key")
        browser.keep("new-security-key")
        browser.press("Create the security key")
        assert browser.heading == "Your backup codes", browser.text
        browser.keep("security-key-codes")
        [credential] = authenticator.credentials()
        assert credential["isResidentCredential"] is False
        browser.open(running.address + SECURITY)
        browser.keep("security-with-key")
        open_sign_in(browser, running)
        fill_in(browser)
        browser.keep("sign-in-with-key")
        browser.press("Use a security key")
        assert "Security" in browser.heading
    assert complaints(browser) == []
    assert audit_kept(browser) == {}


def test_a_passkey_is_offered_once_after_a_password(running: Service, browser: Browser) -> None:
    with browser.authenticator(), browser.on_new_pages(NEVER):
        sign_in(browser, running)
        assert browser.heading == "Sign in faster next time"
        browser.keep("passkey-offer")
        browser.follow("Not now")
        assert "You have no passkeys yet." in browser.text
        sign_in(browser, running)
        assert browser.heading == "Security"
    assert complaints(browser) == []
    assert audit_kept(browser) == {}


def test_the_offer_creates_a_passkey_while_the_browser_waits_in_the_background(running: Service, browser: Browser) -> None:
    with browser.authenticator() as authenticator, browser.on_new_pages(NEVER):
        sign_in(browser, running)
        browser.press("Create a passkey")
        assert browser.heading == "Security"
        assert len(authenticator.credentials()) == 1
        assert "Manage Passkey" in [name_of(link) for link in browser.find("#passkeys a")]
    assert complaints(browser) == []


def test_the_browser_creates_a_passkey_without_asking(running: Service, browser: Browser) -> None:
    with browser.authenticator(), browser.on_new_pages(AT_ONCE):
        sign_in(browser, running)
        browser.wait_until(lambda: browser.heading == "Security")
        assert "Synced" in browser.find("#passkeys")[0].text
    assert complaints(browser) == []


def test_each_kind_of_authenticator_is_a_passkey_or_a_security_key(running: Service, browser: Browser, shared: SharedService) -> None:
    sign_in(browser, running)  # every row ends with another sign-in
    for transport, resident, verified, syncs in AUTHENTICATORS:
        options = {"transport": transport, "hasResidentKey": resident, "hasUserVerification": verified, "isUserVerified": verified}
        row = (transport, resident, verified, syncs)
        with browser.authenticator(**options, defaultBackupEligibility=syncs, defaultBackupState=syncs):
            forget_keys(shared)
            browser.open(running.address + NEW)
            browser.find("button[data-passkey]")[0].click()
            if resident and verified:
                browser.wait_until(lambda: browser.heading == "Security")
                use_passkey(browser, running)
            else:
                browser.wait_until(lambda: "Nothing was chosen." in browser.text)
                browser.open(f"{running.address}{NEW}?kind=security_key")
                browser.press("Create the security key")
                sign_in(browser, running)
                browser.press("Use a security key")
                if browser.heading == "Sign in faster next time":  # an authenticator that verifies its user could have a passkey
                    browser.follow("Not now")
            assert browser.heading == "Security", row
            with psycopg.connect(shared.conninfo) as connection:
                found = connection.execute("select kind, backup_eligible, backed_up, user_verified, transports from passkeys").fetchall()
        kind = "passkey" if resident and verified else "security_key"
        [(*facts, transports)] = found
        assert (facts, transport in transports) == ([kind, syncs, syncs, verified], True), (row, transports)


def test_a_copy_of_a_passkey_and_a_counter_that_goes_back_are_refused(running: Service, browser: Browser, shared: SharedService) -> None:
    sign_in(browser, running)
    with browser.authenticator() as authenticator:
        add_passkey(browser, running)
        [copy] = authenticator.credentials()
        use_passkey(browser, running)
        assert browser.heading == "Security"
        used = take_away(authenticator)
        assert used["signCount"] > copy["signCount"]
        for wrong in (copy, {**used, "signCount": 0}):
            authenticator.add(wrong)
            use_passkey(browser, running)
            assert "it may be a copy" in browser.text
            take_away(authenticator)
        authenticator.add(used)
        use_passkey(browser, running)
        assert browser.heading == "Security"
    browser.wait_until(lambda: any("refused" in str(each.message["Subject"]) for each in shared.sink.emails_to(ADA)))


def test_one_authenticator_has_passkeys_of_two_accounts(running: Service, browser: Browser, shared: SharedService) -> None:
    running.register(EVE, PASSWORD)
    browser.open(shared.sink.wait_for(EVE).link)
    with browser.authenticator() as authenticator:
        sign_in(browser, running)
        add_passkey(browser, running)
        ada = take_away(authenticator)
        sign_in(browser, running, EVE)
        authenticator.add(ada)
        add_passkey(browser, running)
        both = {str(each["userName"]): each for each in authenticator.credentials()}
        assert both.keys() == {ADA, EVE}
        for email, other in ((ADA, EVE), (EVE, ADA)):
            authenticator.remove(both[other]["credentialId"])
            use_passkey(browser, running)
            assert email in str(browser.find(".drop-account")[0].get_attribute("textContent"))
            authenticator.add(both[other])


def test_the_sign_in_page_is_not_shown_in_a_frame(running: Service, browser: Browser) -> None:
    browser.open(f"{running.address}/openapi.json")  # a document on the same host that may have frames
    is_empty = """
        const [path, done] = arguments;
        const frame = document.createElement("iframe");
        frame.onload = () => done(frame.contentDocument === null);
        frame.src = path;
        document.body.append(frame);"""
    assert [browser.wait_for_script(is_empty, path) for path in ("about:blank", "/app/sign-in")] == [False, True]


def test_a_passkey_confirms_that_it_is_the_user(running: Service, browser: Browser, shared: SharedService) -> None:
    sign_in(browser, running)
    with browser.authenticator():
        add_passkey(browser, running)
        with psycopg.connect(shared.conninfo) as connection:
            connection.execute(older_sessions("3 hours").encode())
        browser.follow("Manage Passkey")
        browser.fill("Name", "Laptop")
        browser.press("Save name")
        assert browser.heading == "Confirm that it's you"
        browser.keep("reauthenticate-with-passkey")
        browser.press("Use a passkey")
        browser.press("Continue: Rename a passkey or security key")
        assert "Manage Laptop" in [name_of(link) for link in browser.find("#passkeys a")]
    assert complaints(browser) == []
    assert audit_kept(browser) == {}


def test_a_security_key_confirms_beside_the_password_of_an_account_with_a_passkey(
    running: Service, browser: Browser, shared: SharedService
) -> None:
    sign_in(browser, running)
    with browser.authenticator():
        add_passkey(browser, running)
    with browser.authenticator(**KEY):
        browser.open(f"{running.address}{NEW}?kind=security_key")
        browser.press("Create the security key")
        with psycopg.connect(shared.conninfo) as connection:
            connection.execute(older_sessions("3 hours").encode())
        browser.open(f"{running.address}/app/reauthenticate")
        browser.keep("reauthenticate-with-passkey-and-key")
        browser.fill("Password", PASSWORD)
        browser.press("Use your security key")
        assert browser.address == f"{running.address}/app/account"
        browser.open(running.address + NEW)
        assert "Your account has a passkey, and this needs it." in browser.text
        assert [name_of(button) for button in browser.find("main button")] == ["Use a passkey", "Sign out"]
        browser.keep("reauthenticate-with-passkey-only")
    assert complaints(browser) == []
    assert audit_kept(browser) == {}
