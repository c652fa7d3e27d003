"""A browser's virtual authenticators: phones, laptops and security keys."""

from typing import Any, Final

from selenium import webdriver

# WebAuthn.VirtualAuthenticatorOptions in the Chrome DevTools Protocol.
PLATFORM_AUTHENTICATOR: Final[dict[str, Any]] = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


class Authenticator:
    """A browser's virtual authenticator."""

    def __init__(self, driver: webdriver.Chrome, id_: str) -> None:
        self._driver = driver
        self._id = {"authenticatorId": id_}

    def credentials(self) -> list[dict[str, Any]]:
        """Return its credentials, with their counters and private keys."""
        found: list[dict[str, Any]] = self._driver.execute_cdp_cmd("WebAuthn.getCredentials", self._id)["credentials"]
        return found

    def add(self, credential: dict[str, Any]) -> None:
        """Add a credential in the same form as `credentials`."""
        self._driver.execute_cdp_cmd("WebAuthn.addCredential", {**self._id, "credential": credential})

    def remove(self, credential_id: str) -> None:
        self._driver.execute_cdp_cmd("WebAuthn.removeCredential", {**self._id, "credentialId": credential_id})

    def verify_users(self, verified: bool) -> None:
        """Set whether it verifies its user from now on."""
        self._driver.execute_cdp_cmd("WebAuthn.setUserVerified", {**self._id, "isUserVerified": verified})
