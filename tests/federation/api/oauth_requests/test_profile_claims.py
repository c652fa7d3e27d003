"""The standard claims about a user's profile (OpenID Connect Core section 5.1)."""

import jwt

from core.accounts.model.accounts import Account
from core.accounts.model.profiles import Profile
from core.authentication.model.openid import CLAIMS_OF_SCOPE, Scope, UserFacts
from core.authentication.model.sessions import NO_ENTITLEMENT
from core.kernel.values import Email
from ports import Ports
from tests.accounts.profiles import ALL_FIELDS, FULL_PROFILE, set_profile
from tests.federation.api.oauth_requests.test_consents import agree, tokens_of
from tests.federation.api.relying import RelyingParty, sign_in_browser
from tests.tables import table

# All claims in section 5.1 except email addresses, phone numbers and postal addresses
STANDARD = {
    *("name", "given_name", "family_name", "middle_name", "nickname", "preferred_username", "profile", "picture", "website", "gender"),
    *("birthdate", "zoneinfo", "locale", "updated_at"),
}


async def test_an_application_with_the_scope_gets_all_claims_that_are_set(relying_party: RelyingParty, user: Account, ports: Ports) -> None:
    await set_profile(ports, user.id)
    await sign_in_browser(relying_party, user)
    tokens = await tokens_of(relying_party, (await agree(relying_party, scope="openid profile"))["code"])
    in_id_token = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    at_userinfo = (await relying_party.api.get("/auth/userinfo", token=tokens["access_token"])).json
    for claims in (in_id_token, at_userinfo):
        assert {name: claims[name] for name in STANDARD - {"updated_at"}} == ALL_FIELDS
        assert claims["updated_at"] == int(ports.clock.now().timestamp())
    metadata = (await relying_party.api.get("/.well-known/openid-configuration")).json
    assert set(metadata["claims_supported"]) >= STANDARD
    assert set(CLAIMS_OF_SCOPE[Scope.PROFILE]) == STANDARD


async def test_other_applications_get_no_details(relying_party: RelyingParty, user: Account, ports: Ports) -> None:
    """`GET /api/user` needs no scope, so that it does not show them to applications."""
    await set_profile(ports, user.id)
    await sign_in_browser(relying_party, user)
    plain = await tokens_of(relying_party, await relying_party.code())
    profile = (await relying_party.api.get("/api/user", token=plain["access_token"])).json
    assert profile["name"] == FULL_PROFILE.name
    assert FULL_PROFILE.details.keys().isdisjoint(profile)
    tokens = await tokens_of(relying_party, (await agree(relying_party, scope="openid"))["code"])
    claims = (await relying_party.api.get("/auth/userinfo", token=tokens["access_token"])).json
    assert claims == {"sub": str(user.id)}
    for scope, name in (("openid", None), ("openid profile", FULL_PROFILE.name)):
        tokens = await tokens_of(relying_party, (await agree(relying_party, scope=scope, prompt="consent"))["code"])
        profile = (await relying_party.api.get("/api/user", token=tokens["access_token"])).json
        assert {profile["name"], profile["picture"]} == {name, name and FULL_PROFILE.picture}


@table(
    ("profile", "names"),
    [
        (Profile(), {}),
        (Profile("Ada"), {"given_name": "Ada"}),
        (Profile("Ada King Lovelace"), {"given_name": "Ada King", "family_name": "Lovelace"}),
        (Profile("Ada Lovelace", given_name="Augusta", family_name="King"), {"given_name": "Augusta", "family_name": "King"}),
        # The name's last word may be a part of this family name.
        (Profile("María García López", family_name="García López"), {"family_name": "García López"}),
        (Profile("Ada Lovelace", nickname="Countess"), {"given_name": "Ada", "family_name": "Lovelace"}),
    ],
)
def test_given_and_family_name_come_from_the_name_if_neither_is_set(profile: Profile, names: dict[str, str]) -> None:
    facts = UserFacts(email=Email("ada@example.com"), email_verified=True, profile=profile, entitlement=NO_ENTITLEMENT)
    assert facts.claims(frozenset({"given_name", "family_name"})) == names
