"""Where the forms of a page can lead: the directive `form-action` of its content security policy (security G-1).

Browsers apply this directive to all redirects that follow a form, also to those of an application
after its own callback. So the pages in POSTING_AWAY do not have it, and neither do the templates with the
comment LEADS_AWAY: after their forms, the browser can be redirected to an application or an identity provider.
"""

from functools import cache
from typing import Final

from entrypoints.http.base.rendering.assets import HTTP

LEADS_AWAY: Final = "{# leads away #}\n"

# Pages that post an answer to an application, which may check the header Origin. So the browser must send it.
POSTING_AWAY: Final = frozenset({"federation/form_post.html", "federation/saml_response.html"})
# Pages without forms, or with forms that must send nothing. All other pages post to this server.
WITHOUT_FORMS: Final = frozenset(
    {
        "accounts/deleted.html",
        "accounts/email_changed.html",
        "accounts/forgot_password_done.html",
        "accounts/password_reset_done.html",
        "accounts/undone.html",
        "authentication/email_sign_in_ended.html",
        "authentication/flow_ended.html",
        "authentication/kept_form_ended.html",
        "authentication/not_confirmed.html",
        "error.html",
        "federation/device_done.html",
        "federation/logout_error.html",
        "federation/signed_out.html",
        "federation/signing_out.html",
        "home.html",
        "tenancy/invitation_declined.html",
        "tenancy/invitation_ended.html",
        "tenancy/sign_in_preview.html",
    }
)


@cache
def form_action(template: str) -> str:
    """Return the directive `form-action` of a template, or an empty text if it has none."""
    if template in POSTING_AWAY or LEADS_AWAY in (HTTP / "templates" / template).read_text("utf-8"):
        return ""
    return "form-action 'none'; " if template in WITHOUT_FORMS else "form-action 'self'; "


def referrer_policy(template: str) -> str:
    """Return the referrer policy of a template. With `no-referrer`, browsers send `Origin: null` with a form."""
    return "strict-origin" if template in POSTING_AWAY else "no-referrer"
