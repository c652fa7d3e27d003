"""Users' passkeys over the API, made by a software authenticator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from adapters.crypto import WebAuthnPasskeys
from adapters.postgres.engine.pool import Pool
from core.accounts.model.passkeys import Ceremony, ChallengeBinding
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, VAULT_KEY, Answer, Api, run_sql
from tests.support.passkeys.authenticator import SoftAuthenticator, b64

NO_TARGET: Final[Mapping[str, Any]] = {}
PASSKEYS = "/api/user/passkeys"
RP_ID = BASE_URL.removeprefix("http://")


@dataclass(slots=True)
class PasskeyUser:
    """A user's session over the API, with an authenticator."""

    api: Api
    token: str
    authenticator: SoftAuthenticator = field(default_factory=lambda: SoftAuthenticator(origin=BASE_URL))

    async def options(self, kind: str = "passkey") -> Any:
        """Return a registration's options."""
        answer = await self.api.post(f"{PASSKEYS}/options", {"kind": kind}, token=self.token)
        assert answer.status == 200, answer.text
        return answer.json["publicKey"]

    async def send(self, credential: Any, **others: Any) -> Answer:
        return await self.api.post(PASSKEYS, {"credential": credential, **others}, token=self.token)

    async def add(self, **others: Any) -> Any:
        """Add a passkey, and return it."""
        answer = await self.send(self.authenticator.create(await self.options()), **others)
        assert answer.status == 201, answer.text
        return answer.json

    async def add_key(self, **others: Any) -> Any:
        """Add a security key that does not verify its user, and return it with the backup codes. It is in the authenticator, too."""
        self.authenticator.verifies = False
        credential = self.authenticator.create(await self.options("security_key"))
        answer = await self.send(credential, kind="security_key", **others)
        assert answer.status == 201, answer.text
        return answer.json

    async def confirm(self, authenticator: SoftAuthenticator | None = None) -> None:
        """Show the newest passkey of this authenticator in the session, by default the user's authenticator."""
        options = await self.api.post("/api/auth/reauthenticate/passkey/options", token=self.token)
        body = {"passkey": (authenticator or self.authenticator).get(options.json["publicKey"])}
        answer = await self.api.post("/api/auth/reauthenticate", body, token=self.token)
        assert answer.status == 200, answer.text

    async def listed(self) -> list[Any]:
        answer = await self.api.get(PASSKEYS, token=self.token)
        assert answer.status == 200, answer.text
        passkeys: list[Any] = answer.json["passkeys"]
        return passkeys

    async def names(self) -> list[str]:
        return [passkey["name"] for passkey in await self.listed()]


async def add_passkeys(pool: Pool, user_id: UUID, *rp_ids: str) -> None:
    """Store a passkey for the user per RP ID."""
    for rp_id in rp_ids:
        await run_sql(
            pool,
            """
            with k as (
                insert into passkeys
                    (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid, backup_eligible, created_at)
                values (gen_random_uuid(), %s, 'Key', sha256(random()::text::bytea), '', -7, %s, 0, gen_random_uuid(), true, now())
                returning user_id)
            update users u set passkey_count = passkey_count + 1 from k where u.id = k.user_id""",
            user_id,
            rp_id,
        )


async def start_login(api: Api) -> Any:
    """Return the answer to the right password for a user with a second factor."""
    answer = await api.login()
    assert (answer.status, answer.json.get("mfa_required")) == (200, True), answer.text
    return answer.json


async def verify_second(api: Api, login: Mapping[str, Any], authenticator: SoftAuthenticator, **others: Any) -> Answer:
    """Complete a sign-in with the authenticator's newest passkey or security key."""
    credential = authenticator.get(login["passkey_options"])
    return await api.post("/api/auth/mfa/verify", {"passkey": credential, **others}, token=login["access_token"])


async def sign_in_options(api: Api, **options: Any) -> Any:
    answer = await api.post("/api/auth/passkey/options", **options)
    assert answer.status == 200, answer.text
    return answer.json["publicKey"]


async def sign_in_with_passkey(api: Api, authenticator: SoftAuthenticator, body: Mapping[str, Any] = NO_TARGET, **options: Any) -> Answer:
    """Sign in with the authenticator's newest passkey."""
    credential = authenticator.get(await sign_in_options(api, **options))
    return await api.post("/api/auth/passkey", {"credential": credential, **body}, **options)


def new_credential(session_id: UUID) -> dict[str, str]:
    """Return the texts for a credential that this session's user can add, at the clock's first time."""
    challenge = WebAuthnPasskeys([VAULT_KEY]).new_challenge(ChallengeBinding(Ceremony.REGISTER, session_id.bytes), FakeClock().now())
    party = {"rp": {"id": RP_ID}, "user": {"id": "AAAA"}, "pubKeyCredParams": [{"alg": -7}], "excludeCredentials": []}
    credential = SoftAuthenticator(origin=BASE_URL).create({**party, "challenge": b64(challenge)})
    response = credential["response"]
    return {"new_credential_id": credential["id"], "client_data": response["clientDataJSON"], "attestation": response["attestationObject"]}
