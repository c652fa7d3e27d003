"""Where the forms on a page can lead: the directive `form-action` in its content security policy (security G-1).

Browsers apply this directive to all redirects that follow a form, even to an application's redirects after its
callback. So the pages in POSTING_AWAY do not have it, and neither do the templates with the comment LEADS_AWAY: after
their forms, the browser can be redirected to an application or an identity provider.
"""

from functools import cache
from typing import Final

from entrypoints.http.base.rendering.assets import HTTP

LEADS_AWAY: Final = "{# leads away #}\n"
SENDS_NOTHING: Final = "{# sends nothing #}\n"  # the comment in a template with a form that only shows how it looks
EXTENDS_BASE: Final = '{% extends "base.html" %}'  # the console's frame has forms, and the other frames have no forms

# Pages that post an answer to an application, or a request to an identity provider. These may check the header Origin, so the browser
# must send it.
POSTING_AWAY: Final = frozenset({"federation/connection_form.html", "federation/form_post.html", "federation/saml_response.html"})


@cache
def form_action(template: str) -> str:
    """Return the directive `form-action` for a template, or an empty text if it has no form."""
    source = (HTTP / "templates" / template).read_text("utf-8")
    if template in POSTING_AWAY or LEADS_AWAY in source:
        return ""
    can_send = SENDS_NOTHING not in source and ("<form" in source or EXTENDS_BASE not in source)
    return f"form-action '{'self' if can_send else 'none'}'; "


def referrer_policy(template: str) -> str:
    """Return the referrer policy for a template. With `no-referrer`, browsers send `Origin: null` with a form."""
    return "strict-origin" if template in POSTING_AWAY else "no-referrer"
