"""A running Gatehouse with an organization and a user, who owns it."""

import re
from dataclasses import dataclass
from typing import Any, Final

from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Service

EMAIL: Final = "ada@example.com"
PASSWORD: Final = "correct horse battery staple"
NAME: Final = "Ada Lovelace"


@dataclass(frozen=True, slots=True)
class Client:
    """A registered client: the settings that any library's documentation asks for."""

    issuer: str
    client_id: str
    client_secret: str

    @property
    def variables(self) -> dict[str, str]:
        """Return the settings as environment variables."""
        return {"ISSUER": self.issuer, "CLIENT_ID": self.client_id, "CLIENT_SECRET": self.client_secret}


class Gatehouse:
    """A running Gatehouse. The tests share the organization `acme` and the user Ada."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.address = service.address
        token = self._token()
        self.user_id: str = self._call("PATCH", "/api/user", {"name": NAME}, token)["id"]
        org = self._call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"}, token)["organization"]
        self._org_id = org["id"]
        self.limit(100)  # an application per client

    def limit(self, services: int) -> None:
        """Set the application limit for `acme`."""
        token = self._token()
        tiers = self.service.get("/api/platform/tiers", token=token).json()
        limits = {"tier_id": tiers[0]["id"], "max_services": services}
        self._call("PATCH", f"/api/platform/organizations/{self._org_id}/tier", limits, token)

    def register(self, slug: str, *redirect_uris: str, **settings: Any) -> Client:
        """Register an application at `acme`."""
        body = {"slug": slug, "name": slug.title(), "service_type": "web", "redirect_uris": redirect_uris, **settings}
        answer = self._call("POST", "/api/organizations/acme/services", body, self._token())
        return Client(self.address, answer["service"]["client_id"], answer["client_secret"] or "")

    def services(self, address: str) -> list[dict[str, Any]]:
        """Return the applications at `acme` with this address, oldest first."""
        services = self.service.get("/api/organizations/acme/services?limit=100", token=self._token()).json()["services"]
        return [service for service in services if service["redirect_uris"][0].startswith(f"{address}/")]

    def allow(self, client: Client, resource_id: str, *scopes: str) -> None:
        """Let an application ask for an API resource at `acme`, with these scopes for itself."""
        path = f"/api/organizations/acme/api-resources/{resource_id}/clients/{client.client_id}"
        self._call("PUT", path, {"scopes": scopes}, self._token())

    def admit(self, resource_id: str, host: str) -> None:
        """Let external clients at this host, and clients that register themselves, ask for an API resource at `acme`."""
        path = f"/api/organizations/acme/api-resources/{resource_id}/external-clients"
        self._call("PUT", path, {"admit": "listed", "hosts": [host], "registration": True}, self._token())

    def grants(self, resource_id: str) -> list[dict[str, Any]]:
        """Return the external clients' access to an API resource at `acme`."""
        path = f"/api/organizations/acme/api-resources/{resource_id}/external-clients/grants"
        grants: list[dict[str, Any]] = self.service.get(path, token=self._token()).json()["grants"]
        return grants

    def count_tokens(self) -> int:
        """Return how many requests the token endpoint has answered with tokens."""
        return len([line for line in self.service.log if line.get("path") == "/auth/token" and line.get("status") == 200])

    def add_service_account(self, name: str, **credential: Any) -> Client:
        """Create a service account at `acme` that may read members, with a secret or the credential with these fields."""
        token, accounts = self._token(), "/api/organizations/acme/service-accounts"
        account = self._call("POST", accounts, {"name": name, "role": "member", "scopes": ["members:read"]}, token)
        created = self._call("POST", f"{accounts}/{account['id']}/credentials", {"kind": "secret", "name": "Main", **credential}, token)
        return Client(self.address, account["id"], created.get("secret", ""))

    def revoke_sessions(self) -> None:
        """End the user's sessions at all applications at `acme`, as an admin does."""
        answer = self.service.call("DELETE", f"/api/organizations/acme/users/{self.user_id}/sessions", token=self._token())
        assert answer.is_success, answer.text

    def sign_in(self, browser: FormBrowser, *, cancels: bool = False) -> None:
        """Sign the user in on the page that is open, and agree to the application's scopes, or cancel there.

        Both answers lead back to the application.
        """
        assert self.asks(browser, "sign-in"), (browser.address, browser.text)
        browser.sign_in(EMAIL, PASSWORD)
        if cancels:
            browser.answer("answer", "refuse")
        else:
            self.agree(browser)

    def asks(self, browser: FormBrowser, *steps: str) -> bool:
        """Return whether the open page asks for a sign-in step that is named here."""
        return re.fullmatch(rf"{re.escape(self.address)}/app/flow/[0-9a-f-]{{36}}/(?:{'|'.join(steps)})", browser.address) is not None

    def agree(self, browser: FormBrowser) -> None:
        """Agree to the application's scopes on the page that is open, or to continue at an application that asks for none."""
        assert self.asks(browser, "consent", "confirm"), (browser.address, browser.text)
        browser.answer("answer", "continue")
        assert not browser.address.startswith(self.address), (browser.address, browser.text)

    def _token(self) -> str:
        token: str = self.service.login(EMAIL, PASSWORD)["access_token"]
        return token

    def _call(self, method: str, path: str, body: dict[str, Any], token: str) -> Any:
        answer = self.service.call(method, path, body, token=token)
        assert answer.is_success, answer.text
        return answer.json()
