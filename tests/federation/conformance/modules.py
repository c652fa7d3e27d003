"""The modules in the OpenID Foundation's test plans that apply to statically registered clients."""

from typing import Final

_BASIC: Final = (
    "oidcc-server",
    "oidcc-response-type-missing",
    "oidcc-userinfo-get",
    "oidcc-userinfo-post-header",
    "oidcc-userinfo-post-body",
    "oidcc-ensure-request-without-nonce-succeeds-for-code-flow",
    "oidcc-scope-profile",
    "oidcc-scope-email",
    "oidcc-scope-address",
    "oidcc-scope-phone",
    "oidcc-scope-all",
    "oidcc-alternate-happy-flow",
    "oidcc-display-page",
    "oidcc-display-popup",
    "oidcc-prompt-login",
    "oidcc-prompt-none-not-logged-in",
    "oidcc-prompt-none-logged-in",
    "oidcc-max-age-1",
    "oidcc-max-age-10000",
    "oidcc-ensure-request-with-unknown-parameter-succeeds",
    "oidcc-id-token-hint",
    "oidcc-login-hint",
    "oidcc-ui-locales",
    "oidcc-claims-locales",
    "oidcc-ensure-request-with-acr-values-succeeds",
    "oidcc-codereuse",
    "oidcc-codereuse-30seconds",
    "oidcc-ensure-registered-redirect-uri",
    "oidcc-ensure-post-request-succeeds",
    "oidcc-server-client-secret-post",
    "oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported",
    "oidcc-claims-essential",
    "oidcc-ensure-request-object-with-redirect-uri",
    "oidcc-refresh-token",
    "oidcc-ensure-request-with-valid-pkce-succeeds",
)
# By the name that the certification uses for the plan.
PLANS: Final[dict[str, tuple[str, ...]]] = {
    "Config OP": ("oidcc-discovery-endpoint-verification",),
    "Basic OP": _BASIC,
    "Form Post Basic OP": _BASIC,  # the same modules, with response_mode=form_post
    "RP-Initiated Logout OP": (
        "oidcc-rp-initiated-logout-discovery-endpoint-verification",
        "oidcc-rp-initiated-logout",
        "oidcc-rp-initiated-logout-bad-post-logout-redirect-uri",
        "oidcc-rp-initiated-logout-modified-id-token-hint",
        "oidcc-rp-initiated-logout-no-id-token-hint",
        "oidcc-rp-initiated-logout-no-params",
        "oidcc-rp-initiated-logout-no-post-logout-redirect-uri",
        "oidcc-rp-initiated-logout-no-state",
        "oidcc-rp-initiated-logout-only-state",
        "oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri",
        "oidcc-rp-initiated-logout-bad-id-token-hint",
    ),
    "Back-Channel Logout OP": (
        "oidcc-backchannel-logout-discovery-endpoint-verification",
        "oidcc-backchannel-rp-initiated-logout",
    ),
}
