"""Templates: escaping, the content security policy, branding, next steps, and the assets."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from jinja2 import UndefinedError
from markupsafe import escape

from core.accounts.model.accounts import PasswordReset
from core.applications.model.plans import SubscriptionStatus
from core.authentication.model.identities import LinkedPlace
from core.authentication.model.sessions import KeptForm, ReauthenticationOptions
from core.federation.connections.people import LinkQuestion
from core.kernel.callers import BrowserSession, SetupPart, Visitor
from core.kernel.connections import CODEHOST, ConnectionProtocol
from core.kernel.proofs import Factor, FactorKind, Method, Strength
from core.kernel.sign_in_policy.steps import step_up_to
from core.kernel.values import Email
from core.programs.model.api_resources import ResourceAccess, ResourceScope
from core.setup.model.links import SetupDocument, SetupLink, SetupLinkKind, SetupProposal
from core.setup.renewal import RenewedConnection
from core.tenancy.model.settings import BrandingSettings, Design
from entrypoints.http.base.rendering import assets, templates
from entrypoints.http.base.rendering.templates import Page
from entrypoints.http.pages.flow.step_ups import StepUp
from entrypoints.http.pages.navigation import Link, Mode, Navigation
from tests.accounts.profiles import ALL_FIELDS
from tests.tables import table

HOSTILE = "\"'><script>alert(1)</script><form action=https://elsewhere.example>{{ 7 * 7 }}"

TIME = "4 March 2026 at 05:06 UTC"
AT = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)

# The console frame.
ACCOUNT: dict[str, object] = {
    "form_token": "c4ca4238",
    "done": "It was done.",
    "frame": {
        "user_id": UUID(int=1),
        "email": "ada@example.org",
        "time_zone": "Europe/London",
        "is_impersonated": True,
        "own_token": "c4ca4238",
        "navigation": Navigation(Mode.PERSON, [("Account", [Link("Your account", "/app/account", True, "user-circle")])], []),
        "here": None,
        "organizations": [(UUID(int=2), "Acme & Sons", "/app/organizations/acme", "member")],
        "platform_home": None,
        "enrollment": "/app/enroll?org=acme&next=%2Fapp",
        "curl": [],
    },
    "root": None,
    "with_query": lambda **_: "?",
    "may": lambda _: True,
    "problem": None,
    "wrong": None,
}
SETUP_LINK = SetupLink(
    id=UUID(int=3),
    org_id=UUID(int=2),
    name="Globex & Sons",
    kind=SetupLinkKind.MAILED,
    parts=tuple(SetupPart),
    recipient=Email("it@globex.example"),
    expires_at=AT,
    created_by=UUID(int=1),
    created_at=AT,
)
RENEWED = RenewedConnection("Okta", ConnectionProtocol.SAML, AT)
SETUP_PROPOSAL = SetupProposal(
    id=UUID(int=4),
    org_id=UUID(int=2),
    link_id=UUID(int=3),
    part=SetupPart.DIRECTORY,
    is_ready=True,
    changed_at=AT,
    document=SetupDocument(prefix="scim_live_abc"),
)
UNREGISTERED: dict[str, object] = {
    "uri": "https://elsewhere.example/callback",
    "length": 9000,
    "application": "Portal & Shop",
    "organization": "Acme & Sons",
    "field": "Redirect URIs",
    "settings": "/app/organizations/acme/applications/shop#redirect_uris",
    "is_in_field": True,
    "flaw": None,
    "new_host": "elsewhere.example",
    "is_quiet": True,
}
DEVICE: dict[str, object] = {
    "id": 7,
    "name": "Laptop",
    "system": "Firefox 121.0 on Linux",
    "methods": "Password and Authenticator app",
    "used": AT,
    "first": AT,
    "location": "Geneva, CH",
    "address": "203.0.113.9",
    "is_current": False,
    "trusted": True,
}
PASSKEY: dict[str, object] = {
    "id": 7,
    "name": "Laptop",
    "is_security_key": True,
    "product": "Bitwarden",
    "can_sync": True,
    "is_synced": False,
    "created": AT,
    "used": None,
    "other_host": "old.example",
}
CEREMONY: dict[str, object] = {"challenge": "Y2hhbGxlbmdl", "rpId": "sso.example"}
SIGNALS: dict[str, object] = {"signalCurrentUserDetails": {"rpId": "sso.example", "name": "ada@example.org"}}
OWN_SIGN_IN: dict[str, object] = {
    "reason": "Wrong password",
    "attempts": 3,
    "method": "Password",
    "application": "Portal & Shop",
    "location": "Geneva, CH",
    "address": "203.0.113.9",
    "device": "Firefox on Linux",
    "at": AT,
}
SUBSCRIPTION: dict[str, object] = {
    "subscription": {
        "id": 7,
        "plan": {"name": "Gold"},
        "status": SubscriptionStatus.ACTIVE,
        "current_period_end": AT,
        "provider_subscription_id": "sub_1",
    },
    "service": "Portal & Shop",
    "organization": "Acme & Sons",
}
SCOPE = ResourceScope("orders:read", "Read <your> orders")
ACCESS_TO_API = ResourceAccess(UUID(int=7), "Orders & Returns", "https://api.example.org/", (SCOPE,))
CONSENT: dict[str, object] = {
    "id": 7,
    "service": "Portal & Shop",
    "organization": "Acme & Sons",
    "since": AT,
    "last_sign_in": AT,
    "last_used": AT,
    "is_external": False,
    "host": None,
    "address": None,
    "scopes": ["openid", "profile", "email", "offline_access", "org", "roles", "permissions", "groups"],
    "apis": [ACCESS_TO_API],
}
DEVICE_REQUEST: dict[str, object] = {
    "service": "Portal & Shop",
    "is_external": True,
    "host": "claude.ai",
    "organization": "Acme & Sons",
    "address": "203.0.113.9",
    "agent": "curl/8.5.0",
    "requested_at": AT,
}
BY_EMAIL = {"flow": "/app/flow/8f14e45f", "form_token": "c4ca4238", "email": "ada@example.org", "service": "Portal & Shop"}
REQUEST_ORIGIN = {"browser": "Firefox on Linux", "location": "Berlin, DE", "address": "203.0.113.9"}
LINKS: dict[str, object] = {
    "flow": "/app/flow/8f14e45f",
    "next": "/app/account",
    "sign_in": "/app/sign-in?next=%2F",
    "sign_up": "/app/sign-up?next=%2F",
    "forgot_password": "/app/forgot-password?next=%2F",
}
ADA = Visitor(user_id=UUID(int=1), email=Email("ada@example.com"), session_id=UUID(int=1), browser=BrowserSession(UUID(int=1), None, ()))
STEP_UP = StepUp(ADA, step_up_to(Strength.TWO, "Portal & Shop"), (Factor(FactorKind.PASSKEY),), needs_recovery=True)
TO_SHOP: dict[str, object] = {
    **LINKS,
    "form_token": "c4ca4238",
    "service": "Portal & Shop",
    "organization_name": "Acme & Sons",
    "providers": {"codehost": ("Codehost", "/auth/codehost?next=%2F")},
    "needs_fresh_sign_in": True,
    "hides_providers": True,
    "offers_sign_up": True,
    "other_ways": [("Email me a code", "/sign-in/email")],
    "accepts_password": True,
    "password_at_sign_up": False,
    "accepts_passkey": True,
    "is_folded": True,
    "address_first": False,
    "requires_passkey": True,
    "requires_second": False,
    "step_up": STEP_UP,
    "folded_providers": {"websuite": ("Websuite", "/auth/websuite?next=%2F")},
}
PAGES: dict[str, dict[str, object]] = {
    "accounts/verified.html": {**TO_SHOP, "email": "ada@example.org", "is_signed_in": False, "other": None},
    "accounts/email_changed.html": {**LINKS, "email": "ada@example.org", "is_own": False},
    "accounts/undo.html": {
        "token": "8f14e45f",
        "email": "ada@example.org",
        "starts": [("1", TIME, "The password was changed"), ("2", TIME, "New backup codes were created")],
        "default": 0,
    },
    "accounts/undone.html": {
        "email": "ada@example.org",
        "is_reopened": True,
        "undone": [("1", TIME, "The password was changed")],
        "needs_recovery": True,
        "keeps_second": True,
        "is_unchanged": True,
    },
    "accounts/reset_password.html": {
        "token": "8f14e45f",
        "reset": PasswordReset(is_first_password=False, ends_sessions=True),
        "added": [
            ("keep:1", "Codehost", TIME, True, False, ()),
            ("keep:2", None, TIME, False, False, ()),
            ("keep:3", "Key", TIME, True, True, ("Acme",)),
        ],
        "problem": "The password must have at least 8 characters.",
    },
    "accounts/password_reset_done.html": {
        **LINKS,
        "reset": PasswordReset(is_first_password=True, ends_sessions=False),
        "application": None,
    },
    "accounts/sign_up.html": {
        **TO_SHOP,
        "email": "ada@example.org",
        "typed_name": "Ada",
        "problem": "It is too short.",
        "wrong": "password",
        "is_taken": True,
    },
    "accounts/check_inbox.html": {**TO_SHOP, "email": "ada@example.org"},
    "accounts/resend_verification.html": {**LINKS, "form_token": "c4ca4238"},
    "accounts/resend_verification_done.html": {**LINKS, "form_token": "c4ca4238", "email": "ada@example.org"},
    "accounts/ended_link.html": {
        **LINKS,
        "form_token": "c4ca4238",
        "form_target": "/app/forgot-password",
        "problem": "It was used.",
        "change_email": "/app/account/email",
    },
    "authentication/recover.html": {"form_token": "c4ca4238", "token": "8f14e45f", "problem": "It is wrong."},
    "setup/open.html": {"form_token": "c4ca4238", "token": "8f14e45f", "link": SETUP_LINK, "asks_code": True, "problem": "It is wrong."},
    "setup/ended.html": {"is_open": True, "path": "/setup/steps", "problem": "It has ended."},
    "setup/steps.html": {
        **{"form_token": "c4ca4238", "link": SETUP_LINK, "path": "/setup/steps", "scim_url": "https://localhost/scim/v2"},
        **{
            "proposals": {SetupPart.DIRECTORY: SETUP_PROPOSAL},
            "part_problems": {SetupPart.DIRECTORY: []},
            "domains": [],
            "failed_part": SetupPart.DOMAIN,
            "failed_domain": None,
            "problem": "It is too long.",
        },
        **{
            "products": [("okta", "Okta")],
            "chosen": None,
            "steps": None,
            "endpoints": None,
            "typed": {},
            "test_problem": None,
            "wrong": None,
        },
        **{"is_prepared": True, "renewed": RENEWED, "siem_providers": [("http", "Any server")]},
    },
    "setup/token.html": {"secret": "scim_live_abc", "scim_url": "https://localhost/scim/v2", "path": "/setup/steps"},
    "setup/start_again.html": {
        **{"form_token": "c4ca4238", "path": "/setup/steps", "preset": "okta", "protocol": ConnectionProtocol.SAML, "product_name": "Okta"},
    },
    "setup/finished.html": {"return_url": None, "return_host": None},
    "authentication/recover_factor.html": {
        **{"form_token": "c4ca4238", "path": "/auth/recover/8f14e45f", "email": "ada@example.org", "options": CEREMONY, "allows_app": True},
        **{"qr": "data:image/svg+xml;base64,AAAA", "secret": "ABCD EFGH", "uri": "otpauth://totp/Gatehouse", "problem": "It is wrong."},
        "with_app": True,
    },
    "authentication/recovered.html": {"codes": ["ABCD-EFGH"], "email": "ada@example.org", "with_passkey": True},
    "authentication/recover_owner.html": {
        "form_token": "c4ca4238",
        "token": "8f14e45f",
        "asks_name": True,
        "typed_name": "Ada",
        "resets_factors": True,
        "problem": "It is too long.",
    },
    "tenancy/invitation.html": {
        "token": "8f14e45f",
        "organization": "Acme & Sons",
        "inviter": "grace@example.org",
        "email": "ada@example.org",
        "role": "an administrator",
        "until": AT,
        "is_new_user": True,
        "accepts_password": False,
        "accepts_passkey": True,
        "other_user": "eve@example.org",
        "form_token": "c4ca4238",
        "providers": {"codehost": ("Codehost", "/auth/codehost?next=%2F")},
        "typed_name": "Ada",
        "wrong": "new_password",
        "problem": "It is too short.",
    },
    "tenancy/invitation_accepted.html": {
        **LINKS,
        "organization": "Acme & Sons",
        "email": "ada@example.org",
        "other_user": "eve@example.org",
        "session_token": "c4ca4238",
        "form_token": "c4ca4238",
    },
    "tenancy/invitation_ended.html": {**LINKS, "problem": "It was accepted already."},
    "tenancy/invitation_declined.html": {"organization": "Acme & Sons"},
    "authentication/sign_in.html": {
        **TO_SHOP,
        "service_logo": "/images/c4ca4238/64",
        "email": "ada@example.org",
        "passkey": CEREMONY,
        "signals": SIGNALS,
        "problem": "It is wrong.",
        "notice": None,
        "is_unverified": True,
        "is_wrong": True,
    },
    "federation/no_access.html": {
        "form_token": "c4ca4238",
        "next": "/app/account",
        "email": "ada@example.org",
        "problem": "You have no access.",
        "needs_factor": True,
    },
    "federation/authorize.html": {
        "keeps": True,
        "form_token": "c4ca4238",
        "flow": "/app/flow/8f14e45f",
        "next": "/app/flow/8f14e45f",
        "step": "consent",
        "question": "consent openid profile",
        "logo": "/images/c4ca4238/64",
        "target": "shop.example",
        "problem": "This form has expired.",
        "service": "Portal & Shop",
        "organization": "Acme & Sons",
        "email": "ada@example.org",
        "scopes": CONSENT["scopes"],
        "api": ACCESS_TO_API,
        "selects_account": False,
        "links": {"Privacy policy": "https://shop.example/privacy?a&b", "Logo": "https://shop.example/logo.png"},
    },
    "federation/external_consent.html": {
        "form_token": "c4ca4238",
        "flow": "/app/flow/8f14e45f",
        "next": "/app/flow/8f14e45f",
        "step": "consent",
        "question": "consent orders:read none",
        "problem": "This form has expired.",
        "host": "xn--80aqecdr1a.example",
        "target": "127.0.0.1:33418",
        "service": "Assistant & Co.",
        "organization": "Acme & Sons",
        "email": "ada@example.org",
        "is_local": True,
        "is_open": True,
        "news": ["Change your orders"],
        "scopes": ["openid", "email"],
        "api": ACCESS_TO_API,
    },
    "federation/connection_form.html": {"action": "https://idp.example/sso", "parameters": {"SAMLRequest": "PHNhbWw+"}},
    "federation/client_refused.html": {
        "problem": "It is wrong.",
        "code": "invalid_request",
        "url": "https://app.example/callback?error=s3cr3t&state=a",
        "is_local": False,
        "host": "app.example",
    },
    "federation/form_post.html": {"redirect_uri": "https://app.example/callback", "parameters": {"code": "s3cr3t", "state": "a & b"}},
    "authentication/enroll.html": {
        "form_token": "c4ca4238",
        "done": "You've joined the organization.",
        "explanation": "Acme & Sons requires a second factor.",
        "due_at": AT,
        "target": {"org": "acme", "next": "/app/account"},
        "needs_recovery": False,
        "key": True,
        "passkey": True,
        "app": True,
        "password": True,
        "providers": True,
    },
    "authentication/reauthentication.html": {
        "form_token": "c4ca4238",
        "email": "ada@example.com",
        "target": {"next": "/app/account"},
        "options": ReauthenticationOptions(
            needs_first_factor=True,
            password=True,
            email_code=True,
            passkey=True,
            security_key=True,
            providers=(LinkedPlace(CODEHOST),),
            needs_second_factor=True,
            second_methods=(Method.TOTP,),
        ),
        "providers": {"codehost": "Codehost"},
        "again_at": "Okta & Co",
        "is_only_passkey": True,
        "needs_recovery": True,
        "is_platform_owner": True,
        "passkey": CEREMONY,
        "key": CEREMONY,
        "key_name": "security key",
        "wrong": "code",
        "is_emailed": False,
        "label": "Create an API key",
        "asked": None,
        "connection": None,
        "way_back": "/app/organizations/acme/applications",
        "problem": "It is wrong.",
    },
    "authentication/kept_form.html": {
        "form_token": "c4ca4238",
        "kept": KeptForm(uuid4(), uuid4(), "/app/account/delete", "Delete your account", {}, datetime.now(UTC), datetime.now(UTC)),
        "form_page": "/app/account/delete",
    },
    "authentication/not_confirmed.html": {"problem": "It is another account.", "next_path": "/app/reauthenticate?next=%2Fapp"},
    "authentication/kept_form_ended.html": {"problem": "It has expired.", "form_page": "/app/account/delete"},
    "federation/saml_response.html": {
        "acs_url": "https://app.example/acs",
        "saml_response": "PHNhbWw+",
        "relay_state": "where",
        "is_error": False,
    },
    "authentication/session_ended.html": {
        "action": "/app/organizations/acme/applications/new",
        "sealed": "c4ca4238",
        "sign_in": "/app/signed-in",
        "form_page": "/app/organizations/acme/applications/new",
        "is_again": True,
        "expires_at": datetime.now(UTC),
    },
    "authentication/signed_in.html": {"email": "ada@example.org"},
    "authentication/other_user.html": {
        "form_token": "c4ca4238",
        "action": "/app/flow/1/switch",
        "start": "/auth/codehost?flow=1",
        "stay": "/app/flow/1",
        "email": "ada@example.org",
        "address": "grace@example.org",
    },
    "federation/unregistered_uri.html": {"unregistered": UNREGISTERED, "request_id": "q3f8cW0nT1y5", "sign_out": None},
    "federation/link_connection.html": {
        "form_token": "c4ca4238",
        "action": "/app/flow/1/link",
        "question": LinkQuestion(UUID(int=59), "Acme & Sons", "Okta & Sons", Email("ada@example.com")),
    },
    "federation/connection_test_result.html": {
        "connection_name": "Okta & Sons",
        "path": "/app/organizations/acme/connections/okta/test",
        "failure": None,
        "person": {
            "subject": "4711",
            "email": None,
            "is_email_verified": False,
            "profile": {"name": None, "given_name": "Ada", "family_name": None, "picture": None, "locale": "en"},
            "groups": {"staff"},
            "groups_left_out": True,
            "has_second_factor": False,
        },
        "refused_email": "ada@",
        "received": [("groups", ["staff", "R&D"]), ("address", None)],
        "missing": ["given_name"],
    },
    "federation/signed_out.html": {
        "unregistered": UNREGISTERED,
        "is_partial": True,
        "at_provider": True,
        "cannot_return": True,
        "sign_in_path": "/app/sign-in",
        "application": "Portal & Shop",
        "return_url": "https://shop.example/bye",
    },
    "federation/end_session.html": {
        "unregistered": UNREGISTERED,
        "form_token": "c4ca4238",
        "action": "/auth/end-session",
        "service": "Portal & Shop",
        "organization": "Acme & Sons",
        "email": "ada@example.org",
        "cannot_return": True,
    },
    "federation/signing_out.html": {"next_path": "/saml/acme/shop/slo", "at_provider": False},
    "federation/logout_error.html": {"next_path": "/saml/acme/shop/slo"},
    "authentication/passkey_offer.html": {
        **{"form_token": "c4ca4238", "next": "/app/account", "options": CEREMONY, "background": CEREMONY, "problem": "It is wrong."},
    },
    "authentication/sign_in_code.html": {
        **LINKS,
        **{"form_token": "c4ca4238", "methods": ["totp", "passkey", "backup_code"], "passkey": CEREMONY, "problem": "It is wrong."},
        "key": "security key",
        "asked": "Acme & Sons requires a second factor: a passkey or security key.",
    },
    "authentication/flow_ended.html": {
        "is_signed_in": False,
        "has_cookies": True,
        "start": "https://app.example/start",
        "service": "Portal & Shop",
    },
    "authentication/email_sign_in_code.html": {
        **BY_EMAIL,
        "next": "/",
        "is_again": False,
        "problem": "It is wrong.",
        "sign_in": "/app/sign-in",
    },
    "authentication/email_sign_in_link.html": {
        **BY_EMAIL,
        "token": "8f14e45f",
        "origin": {**REQUEST_ORIGIN, "time": AT},
        "sign_in": "/app/sign-in",
    },
    "authentication/email_sign_in_ended.html": {"problem": "It has expired."},
    "accounts/forgot_password.html": {
        **LINKS,
        "form_token": "c4ca4238",
        "email": "ada@example.org",
        "connection": ("Acme & Sons", "/auth/connections/c4ca/start?next=%2F"),
    },
    "accounts/forgot_password_done.html": {**LINKS},
    "federation/device.html": {
        "form_token": "c4ca4238",
        "email": "ada@example.org",
        "user_code": "BCDF-GHJK",
        "problem": "This code does not exist.",
    },
    "federation/device_confirm.html": {
        "form_token": "c4ca4238",
        "email": "ada@example.org",
        "user_code": "BCDF-GHJK",
        "scopes": CONSENT["scopes"],
        "api": replace(ACCESS_TO_API, scopes=()),
        **DEVICE_REQUEST,
    },
    "federation/device_done.html": {"approved": True, "service": "Portal & Shop", "organization": "Acme & Sons"},
    "accounts/account.html": {
        **ACCOUNT,
        **{"email": "ada@example.org", "verified": True, "pending": "lovelace@example.org"},
        "has_second_factor": True,
        "profile": {"name": "Ada Lovelace", "picture": None, "locale": "en-GB", "zoneinfo": "Europe/London"},
        "organizations": [("Acme & Sons", "member"), ("Own", "owner")],
        "applications": ["Portal & Shop"],
        "consents": ["Portal & Shop"],
        "subscriptions": [("Gold", "Portal & Shop")],
    },
    "accounts/identities.html": {
        **ACCOUNT,
        "linked": [({"provider": "codehost", "email": None, "provider_user_id": "583231", "linked_at": AT}, "Codehost")],
        "others": [{"name": "Websuite", "provider": "websuite", "can_be_linked": True, "at_an_application": True}],
        "links": [{"connection": "Okta & Sons", "organization": "Acme & Sons", "connection_id": "1", "linked_at": AT}],
        "problem": "It is linked already.",
    },
    "accounts/link.html": {**ACCOUNT, "provider": "Codehost", "address": "https://codehost.example/authorize?state=x"},
    "accounts/profile.html": {
        **ACCOUNT,
        "typed": {**ALL_FIELDS, "locale": "en-GB"},
        "uploaded": "/images/c4ca4238/256",
        "opens_details": True,
        "time_zones": ["Europe/Berlin", "Europe/London"],
        "wrong": None,
        "problem": "It is not an https URL.",
    },
    "billing/own_subscriptions.html": {**ACCOUNT, "subscriptions": [SUBSCRIPTION]},
    "billing/own_subscription.html": {**ACCOUNT, "done": "It was done.", "own": SUBSCRIPTION},
    "accounts/delete.html": {
        **ACCOUNT,
        "email": "ada@example.org",
        "programs": ["Service accounts that you answer for go on."],
        "obstacle": None,
        "owns_organizations": False,
        "must_sign_in": False,
        "problem": "It is not right.",
    },
    "accounts/deleted.html": {"erase_at": TIME},
    "accounts/email.html": {
        **ACCOUNT,
        **{
            "email": "ada@example.org",
            "verified": False,
            "pending": "lovelace@example.org",
            "until": AT,
            "typed": "ada",
            "blocking": ["Acme"],
        },
        "problem": "It is not valid.",
    },
    "accounts/password.html": {
        **ACCOUNT,
        "email": "ada@example.org",
        "has_password": True,
        "least_length": 20,
        "about_current": False,
        "problem": "Too short.",
    },
    "accounts/security.html": {
        **ACCOUNT,
        "protection": "protected",
        **{
            "passkeys": [PASSKEY],
            **{"passkeys": [PASSKEY], "can_drop_password": True, "has_host": True, "is_full": False, "signals": SIGNALS},
            **{"app_since": AT, "second_since": AT},
            "has_host": True,
            "is_full": False,
            "app_since": AT,
            "second_since": AT,
            "signals": SIGNALS,
        },
        **{"has_password": True, "since": AT, "codes": 1, "linked": ["Codehost"], "problem": "Not now.", "full": None},
        **{"wait": None, "is_wait_over": False, "can_wait": True},
        "pages": {"previous": None, "next": "?page=2", "summary": "Page 1 of 2"},
        **{"devices": [DEVICE], "device_count": 9, "trusted": 1},
        **{"policies": [{"name": "Acme & Sons", "rules": [("Second factor", "For everyone", AT)]}], "policy_count": 2},
        "sessions": [
            {
                "id": 7,
                "title": "Portal of Acme",
                "where": "203.0.113.9",
                "agent": None,
                "connection": "Okta & Co",
                "since": AT,
                "is_current": False,
            }
        ],
        **{"listed_sessions": 1, "session_count": 2},
        "sign_ins": [OWN_SIGN_IN],
    },
    "accounts/sign_ins.html": {
        **ACCOUNT,
        **{"sign_ins": [OWN_SIGN_IN], "is_cut": True, "previous": None, "next": "?page=2", "summary": "Page 1 of 2"},
    },
    "accounts/two_factor_setup.html": {
        **ACCOUNT,
        "qr": "data:image/svg+xml;base64,PHN2Zy8+",
        "secret": "ABCD EFGH",
        "uri": "otpauth://totp/Gatehouse:ada?secret=ABCDEFGH",
        "problem": "It is wrong.",
    },
    "accounts/backup_codes.html": {**ACCOUNT, "codes": ["ABCD-2345"], "switched_on": True},
    "accounts/device.html": {**ACCOUNT, "device": DEVICE, "typed": "Laptop", "problem": "Too long."},
    "accounts/passkey.html": {**ACCOUNT, "passkey": PASSKEY, "typed": {"name": "Laptop"}, "problem": "Too long.", "wrong": "name"},
    "accounts/new_passkey.html": {
        **ACCOUNT,
        **{"kind": "security_key", "options": CEREMONY, "is_second": False, "typed": {"name": "Laptop"}, "problem": "Not now."},
    },
    "federation/own_consents.html": {
        **ACCOUNT,
        "consents": [CONSENT, CONSENT | {"is_external": True, "host": "claude.ai", "address": "https://claude.ai/client"}],
    },
    "federation/own_consent.html": {**ACCOUNT, "consent": CONSENT | {"is_self_registered": False}, "email": "ada@example.org"},
    "applications/own_applications.html": {
        **ACCOUNT,
        "applications": [{"id": UUID(int=3), "name": "Portal & Shop", "organization": "Acme & Sons", "launch_url": "https://app.example/"}],
    },
    "tenancy/own_organizations.html": {
        **ACCOUNT,
        "organizations": [
            (
                {"id": UUID(int=2), "slug": "acme", "name": "Acme & Sons", "status": "pending"},
                {"role": "member", "created_at": AT, "confirmed_at": None},
                "member",
                "/app/organizations/acme",
            )
        ],
    },
    "error.html": {
        "status": 404,
        "title": "Not Found",
        "message": "There is nothing here.",
        "request_id": "q3f8cW0nT1y5",
        "without_query": None,
        "way_back": None,
    },
}
PAGES["error_impersonated.html"] = {**PAGES["error.html"], "end_token": "c4ca4238"}
PAGES["tenancy/sign_in_preview.html"] = PAGES["authentication/sign_in.html"]
# These pages also work without their script. Their nonce allows only this script.
SCRIPTED = {"federation/connection_form.html", "federation/form_post.html", "federation/saml_response.html"}
# The passkey script, or the console script
WITH_PASSKEYS = {
    *("accounts/new_passkey.html", "accounts/security.html", "authentication/reauthentication.html"),
    *("authentication/recover_factor.html", "authentication/recovered.html"),
    *("authentication/sign_in.html", "authentication/sign_in_code.html", "tenancy/sign_in_preview.html"),
    "authentication/passkey_offer.html",
    *("setup/steps.html", "setup/token.html"),
}
# Forms on these pages lead to redirects to an application or an identity provider.
LEADING_AWAY = {
    "authentication/enroll.html",
    "accounts/sign_up.html",
    "accounts/verified.html",
    "authentication/email_sign_in_code.html",
    "authentication/email_sign_in_link.html",
    "authentication/other_user.html",
    "authentication/reauthentication.html",
    "authentication/sign_in.html",
    "authentication/passkey_offer.html",
    "authentication/sign_in_code.html",
    "federation/authorize.html",
    "federation/external_consent.html",
    "federation/end_session.html",
    "federation/link_connection.html",
    "tenancy/invitation.html",
}
# These pages post to an application, or to an identity provider.
POSTING_AWAY = SCRIPTED
# This server answers the forms on these pages with its own pages.
ENDING_HERE = {
    "accounts/check_inbox.html",
    "accounts/ended_link.html",
    "accounts/forgot_password.html",
    "accounts/resend_verification.html",
    "accounts/resend_verification_done.html",
    "accounts/reset_password.html",
    "accounts/undo.html",
    "authentication/kept_form.html",
    "authentication/recover.html",
    "authentication/recover_factor.html",
    "authentication/recover_owner.html",
    "authentication/session_ended.html",
    "error_impersonated.html",
    "federation/device.html",
    "federation/device_confirm.html",
    "federation/no_access.html",
    "setup/open.html",
    "setup/start_again.html",
    "setup/steps.html",
    "tenancy/invitation_accepted.html",
}
# These pages have no form, or a form that must send nothing.
WITHOUT_FORMS = {
    "accounts/deleted.html",
    "accounts/email_changed.html",
    "federation/client_refused.html",
    "accounts/forgot_password_done.html",
    "accounts/password_reset_done.html",
    "accounts/undone.html",
    "authentication/email_sign_in_ended.html",
    "authentication/flow_ended.html",
    "authentication/kept_form_ended.html",
    "authentication/not_confirmed.html",
    "authentication/recovered.html",
    "authentication/signed_in.html",
    "error.html",
    "federation/connection_test_result.html",
    "federation/device_done.html",
    "federation/logout_error.html",
    "federation/signed_out.html",
    "federation/signing_out.html",
    "federation/unregistered_uri.html",
    "setup/ended.html",
    "setup/finished.html",
    "setup/token.html",
    "tenancy/invitation_declined.html",
    "tenancy/invitation_ended.html",
    "tenancy/sign_in_preview.html",
}
DOCUMENTATION = {f"documentation/{name}.html" for name in ("frame", "page", "search")}
PARTS = {"base.html", "posting.html", "ui.html", "docs.html", *DOCUMENTATION}
TEMPLATES = assets.HTTP / "templates"


def is_in_console(name: str) -> bool:
    text = (TEMPLATES / name).read_text("utf-8")
    return any(f'extends "{layout}"' in text for layout in ("console.html", "account_layout.html", "applications/_layout.html"))


# Pages with their own frame, and with an organization's branding.
OUTSIDE = [name for name in PAGES if not is_in_console(name)]


def render(name: str, **values: object) -> Page:
    return templates.render(name, **{**PAGES[name], **values})  # type: ignore[arg-type]  # the table knows each page's values


def policy(headers: Mapping[str, str]) -> dict[str, str]:
    directives = (directive.strip().partition(" ") for directive in headers["Content-Security-Policy"].split(";"))
    return {name: sources for name, _, sources in directives}


def all_templates() -> set[str]:
    return {str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("[!_]*.html")}  # templates with "_" are included in templates


def form_action(name: str) -> dict[str, str]:
    """Return the directive `form-action` that a template must have, if any."""
    if name in LEADING_AWAY | POSTING_AWAY:
        return {}
    return {"form-action": "'none'" if name in WITHOUT_FORMS else "'self'"}


def test_every_template_is_in_the_table() -> None:
    """Console pages need no row. The console tests open them with data from the database."""
    templates = all_templates()
    assert PAGES.keys() - templates == set()
    assert {name for name in templates - PAGES.keys() - PARTS if not is_in_console(name)} == {"console.html"}


def test_every_template_says_where_its_forms_lead() -> None:
    kinds = (LEADING_AWAY, POSTING_AWAY, ENDING_HERE, WITHOUT_FORMS, {name for name in all_templates() if is_in_console(name)})
    assert sorted(name for kind in kinds for name in kind) == sorted(all_templates() - PARTS - {"console.html"})
    assert {name: templates.form_action(name) for name in all_templates()} == {
        name: "".join(f"{directive} {sources}; " for directive, sources in form_action(name).items()) for name in all_templates()
    }
    with_forms = {name for name in OUTSIDE if "<form" in render(name).body} - {"tenancy/sign_in_preview.html"}
    assert with_forms == LEADING_AWAY | POSTING_AWAY | ENDING_HERE


def test_two_identity_providers_with_the_same_name_have_a_button_each() -> None:
    body = render(
        "authentication/sign_in.html", providers={"codehost": ("Work", "/auth/codehost"), "websuite": ("Work", "/auth/websuite")}
    ).body
    assert [f'href="/auth/{slug}"' in body for slug in ("codehost", "websuite")] == [True, True]


@table("name", OUTSIDE)
def test_a_page_is_a_complete_document_without_scripts(name: str) -> None:
    body = render(name).body
    assert body.startswith('<!doctype html>\n<html lang="en">')
    assert body.count("<h1") == 1
    assert re.search(r"<title>[^<]+ · Gatehouse</title>", body)
    assert body.count("<script") == (name in SCRIPTED | WITH_PASSKEYS)
    ids = re.findall(r' id="([^"]+)"', body)
    assert sorted(ids) == sorted(set(ids))
    assert " style=" not in body  # the nonce covers the style element only


@table("name", PAGES)
def test_a_page_can_load_nothing_else(name: str) -> None:
    page = render(name)
    nonces = re.findall(r'<style nonce="([\w-]{22})">', page.body)
    assert len(nonces) == 1
    assert policy(page.headers) == {
        "default-src": "'none'",
        "style-src": f"'nonce-{nonces[0]}'",
        "img-src": "'self' data:",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        **form_action(name),
    }
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Referrer-Policy"] == ("strict-origin" if name in POSTING_AWAY else "no-referrer")
    assert page.headers["Cache-Control"] == "no-store"


def test_every_response_has_a_new_nonce() -> None:
    first, second = (render("authentication/signed_in.html").headers["Content-Security-Policy"] for _ in range(2))
    assert first != second


# Without the value, the page has another next step.
VARIANTS: dict[str, dict[str, object]] = {
    "accounts/verified.html": {"is_signed_in": True},
    "accounts/email_changed.html": {"is_own": True},
    "federation/device_done.html": {"approved": False},
    "federation/authorize.html": {"scopes": [], "api": None, "selects_account": True},
    "authentication/flow_ended.html": {"is_signed_in": True, "has_cookies": True, "start": "/app", "service": None},
    "tenancy/own_organizations.html": {"organizations": []},
    "applications/own_applications.html": {"applications": []},
    "federation/own_consents.html": {"consents": []},
    "accounts/security.html": {
        **{
            "has_password": False,
            "since": None,
            "app_since": None,
            "second_since": None,
            "passkeys": [],
            "signals": None,
            "linked": [],
            "devices": [],
            "device_count": 0,
            "sign_ins": [],
        },
        "full": "sessions",
    },
    "accounts/sign_ins.html": {"sign_ins": []},
    "tenancy/invitation.html": {"inviter": None, "is_new_user": False},
    "tenancy/invitation_accepted.html": {"other_user": None},
}


@table("name", PAGES)
def test_a_page_has_a_next_step(name: str) -> None:
    for values in (PAGES[name], PAGES[name] | VARIANTS.get(name, {})):
        body = render(name, **values).body
        main = body.partition("<main")[2].partition("</main>")[0]
        assert re.search(r'<a [^>]*href="[^"]+"|<form [^>]*action="[^"]+">.*<button [^>]*type="submit"', main, re.DOTALL), main


NOT_SHOWN = ("wrong", "failed_part")  # the field name, which a page compares
# The pages around the sign-in get more values than they show.
TEXTS = [
    (name, value)
    for name, values in PAGES.items()
    for value, example in values.items()
    if isinstance(example, str) and value not in NOT_SHOWN and (value not in TO_SHOP or "marked" in render(name, **{value: "marked"}).body)
]


@table(("name", "value"), TEXTS)
def test_hostile_values_are_escaped(name: str, value: str) -> None:
    page = render(name, **{value: HOSTILE})
    assert "&lt;script&gt;alert(1)" in page.body
    assert page.body.count("<script") == (name in SCRIPTED) + is_in_console(name) + (name in WITH_PASSKEYS)
    assert "elsewhere.example>" not in page.body
    assert "{{ 7 * 7 }}" in page.body
    assert policy(page.headers).get("form-action") == policy(render(name).headers).get("form-action")


@table("key", [key for key, value in DEVICE.items() if isinstance(value, str)])
def test_hostile_names_of_devices_are_escaped(key: str) -> None:
    hostile = DEVICE | {key: HOSTILE}
    for page in (render("accounts/security.html", devices=[hostile]), render("accounts/device.html", device=hostile)):
        assert "<script>" not in page.body
        assert "elsewhere.example>" not in page.body


def test_a_page_has_the_given_status() -> None:
    request_id = "q3f8cW0nT1y5"
    page = templates.render(
        "error.html",
        status=429,
        title="Too many requests",
        message="Try again in 27 s.",
        request_id=request_id,
        without_query=None,
        way_back=None,
    )
    assert page.status == 429
    assert "Error 429" in page.body
    assert request_id in page.body


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        templates.render("error.html", title="Not Found", request_id="q3f8cW0nT1y5")


def test_a_refused_password_is_announced_to_screen_readers() -> None:
    body = render("accounts/reset_password.html", problem="The password is too common.").body
    assert '<div class="notice notice-bad" id="problem" role="alert"><p>The password is too common.</p></div>' in body
    assert 'aria-invalid="true" aria-describedby="problem new_password-hint"' in body
    assert "<title>Error: " in body


def test_the_reset_form_names_the_rules_for_passwords() -> None:
    body = render("accounts/reset_password.html", problem=None).body
    assert '<form method="post" action="/auth/reset-password">' in body
    assert '<input type="hidden" name="token" value="8f14e45f">' in body
    assert (
        'type="password" required aria-describedby="new_password-hint" autocomplete="new-password" minlength="8" maxlength="128">' in body
    )
    assert " aria-invalid=" not in body
    assert " role=" not in body


def test_an_invitation_shows_its_data_and_both_answers() -> None:
    body = render("tenancy/invitation.html", is_new_user=False, form_token=None).body
    assert "<h1>You are invited to <bdi>Acme &amp; Sons</bdi></h1>" in body
    assert (
        "<strong>grace@example.org</strong> has invited you (<strong>ada@example.org</strong>) to join <bdi>Acme &amp; Sons</bdi>" in body
    )
    assert "as <strong>an administrator</strong>." in body
    assert f'This invitation expires <time datetime="{AT.isoformat()}" title="{TIME}">' in body
    for answer, label in (("accept", "Accept"), ("decline", "Decline")):
        form = body.partition(f'<form method="post" action="/app/invitations/{answer}">')[2].partition("</form>")[0]
        assert '<input type="hidden" name="token" value="8f14e45f">' in form
        assert f'type="submit">{label}</button>' in form


def test_an_invitation_of_a_deleted_inviter_names_no_inviter() -> None:
    assert "You've been invited (<strong>ada@example.org</strong>) to join" in render("tenancy/invitation.html", inviter=None).body


# Branding (decision 66)

LOGO = "https://cdn.acme.example:8443/logo.svg?size=2&v=7"
PORTAL = Design("Acme & Sons", BrandingSettings(LOGO, "#7a1fa2", "Acme Portal"))
# The pages that links in emails open.
BRANDED = [name for name in OUTSIDE if name not in ("error.html", *SCRIPTED)]


def render_for(design: Design, name: str = "accounts/reset_password.html") -> Page:
    return render(name, design=design)


@table("name", BRANDED)
def test_a_page_has_the_name_the_logo_and_the_color_of_an_organization(name: str) -> None:
    body = render_for(PORTAL, name).body
    assert re.search(r"<title>[^<]+ · Acme Portal</title>", body)
    header = body.partition("<header>")[2].partition("</header>")[0]
    assert f'<img class="logo" src="{LOGO.replace("&", "&amp;")}" alt=""><bdi>Acme Portal</bdi>' in header
    assert "--button: #7a1fa2;" in body
    assert '<a href="/">Gatehouse</a> signs people in for <bdi>Acme Portal</bdi>.' in body.partition("</main>")[2]
    assert body.count("<script") == (name in WITH_PASSKEYS)
    assert " style=" not in body


@table("name", BRANDED)
def test_a_branded_page_can_also_load_its_logo(name: str) -> None:
    page, plain = render_for(PORTAL, name), render(name)
    nonces = re.findall(r'<style nonce="([\w-]{22})">', page.body)
    assert len(nonces) == 2
    assert len({*nonces}) == 1
    assert policy(page.headers) == policy(plain.headers) | {
        "style-src": f"'nonce-{nonces[0]}'",
        "img-src": "'self' data: https://cdn.acme.example:8443",
    }
    assert page.headers.keys() == plain.headers.keys()
    assert page.headers["Referrer-Policy"] == "no-referrer"


@table(
    ("logo", "origin"),
    [
        ("https://acme.example/logo.svg", "https://acme.example"),
        ("HTTPS://CDN.Acme.Example/logo.svg", "https://cdn.acme.example"),
        ("https://acme.example?logo", "https://acme.example"),
        ("http://127.0.0.1:8080/logo.svg", "http://127.0.0.1:8080"),
    ],
)
def test_the_origin_of_the_logo_is_normalized(logo: str, origin: str) -> None:
    assert policy(render_for(Design("Acme", BrandingSettings(logo_url=logo))).headers)["img-src"] == f"'self' data: {origin}"


@table("logo", ["https://a; script-src *", "https://*", "javascript:alert(1)", "http://acme.example/", '"><script>'])
def test_an_invalid_logo_does_not_widen_the_policy(logo: str) -> None:
    page = render_for(Design("Acme", BrandingSettings(logo_url=logo)))
    assert policy(page.headers)["img-src"] == "'self' data:"
    assert "<script" not in page.body


def test_an_organization_without_branding_is_shown_by_name() -> None:
    page = render_for(Design("Acme Ltd."))
    assert '<span class="brand"><span class="initial" aria-hidden="true">A</span><bdi>Acme Ltd.</bdi></span></header>' in page.body
    assert page.body.count("<style") == 1
    assert "<img" not in page.body
    assert policy(page.headers)["img-src"] == "'self' data:"
    assert " · Acme Ltd.</title>" in page.body


def test_the_title_of_an_invitation_names_the_organization_once() -> None:
    assert (
        "<title>Invitation to Acme &amp; Sons · Gatehouse</title>"
        in render("tenancy/invitation.html", design=Design("Acme & Sons"), problem=None).body
    )


NAMES = [HOSTILE, '"onload="alert(1)', "</title></style><b>", "=?utf-8?q?x?=", "שלום", "مرحبا 42"]


@table("name", NAMES)
def test_hostile_product_names_are_escaped(name: str) -> None:
    def skeleton(name: str) -> str:
        body = render_for(Design("Acme", BrandingSettings(LOGO, "#7a1fa2", name))).body
        return re.sub(r'nonce="[^"]+"', "", body).replace(str(escape(name)), "")

    assert skeleton(name) == skeleton("Acme Portal")
    assert f"<bdi>{escape(name)}</bdi>" in render_for(Design(name)).body


def test_the_api_page_can_run_only_our_files() -> None:
    page = templates.docs()
    assert policy(page.headers) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert "://" not in page.body
    assert re.findall(r"<script[^>]*>(.*?)</script>", page.body, re.DOTALL) == ["", ""]
    assert "<style" not in page.body


@table("page", [templates.docs(), templates.render("authentication/signed_in.html", email="")], ids=["docs", "page"])
def test_the_files_that_a_page_names_are_served(page: Page) -> None:
    names = re.findall(r'"/assets/([^"]+)"', page.body)
    assert names
    assert all(assets.asset(name) for name in names)


def test_an_asset_is_cached_forever_under_the_name_of_its_content() -> None:
    name = assets.asset_url("docs.js").removeprefix("/assets/")
    asset = assets.asset(name)
    assert asset is not None
    fingerprint = hashlib.sha256(asset.body()).hexdigest()[:16]
    assert name == f"docs.{fingerprint}.js"
    assert asset.headers == {
        "Content-Type": "text/javascript; charset=utf-8",
        "Cache-Control": "public, max-age=31536000, immutable",
        "ETag": f'"{fingerprint}"',
    }


@table(
    "name",
    ["", ".", "..", "icon.svg", "docs.js", "pages.css", "../__init__.py", "..%2f__init__.py", "..\\__init__.py",
     "/etc/passwd", "../assets/icon.svg", "docs.js\0", "../assets/pages.css", "templates/base.html"],
)  # fmt: skip
def test_other_files_do_not_exist(name: str) -> None:
    assert assets.asset(name) is None
    assert assets.asset(name + assets.asset_url("icon.svg")) is None


def test_pages_quote_the_links_of_other_pages_as_they_are() -> None:
    texts = {path.name: path.read_text() for path in TEMPLATES.rglob("*.html")}
    quoted = {name: re.findall(r"[Ff]orgot [^<.]*password\?", text) for name, text in texts.items()}
    assert {each for links in quoted.values() for each in links} == {"Forgot your password?"}
