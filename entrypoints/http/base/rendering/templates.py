"""Renders the HTML pages, with the places that their forms may lead to (security G-1).

A page is complete: the response contains markup, style and icon, and its content security policy allows nothing else (security G-1). Pages
work without scripts, except for passkey ceremonies and the API page.

Browsers apply this directive to all redirects that follow a form, even to an application's redirects after its
callback. So the pages in POSTING_AWAY do not have it, and neither do the templates with the comment LEADS_AWAY: after
their forms, the browser can be redirected to an application or an identity provider.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from secrets import token_urlsafe
from types import MappingProxyType
from typing import Final

from heroicons.jinja import heroicon_outline
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from quart import Response, g, has_app_context, has_request_context

from core.accounts.model import accounts
from core.accounts.model.mfa import SETUP_TTL
from core.accounts.model.profiles import MAX_NAME_LENGTH
from core.kernel import display
from core.kernel.policy import SupportContact
from core.tenancy.model import settings
from entrypoints.http.base import context
from entrypoints.http.base.rendering import assets, avatars, labels
from entrypoints.http.base.rendering.guides import GUIDES, navigation
from entrypoints.http.base.rendering.private_keys import can_hold_private_key
from ports.outside import EmailMessage


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page. The middleware adds the headers that all responses have: `nosniff`, HSTS with https, the request id."""

    body: str
    status: int
    headers: Mapping[str, str]


def page_response(page: Page) -> Response:
    """Return the response for a rendered page."""
    return Response(page.body, page.status, dict(page.headers))


@cache
def _environment() -> Environment:
    """Return the templates. A template is compiled on first use."""
    environment = Environment(
        loader=FileSystemLoader(assets.HTTP / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # otherwise every page checks the template files
    )
    environment.filters |= {
        "utc": display.format_utc,
        "ago": _ago,
        "exact": _exact,
        "label": labels.label,
        "initials": avatars.initials,
        "hue": avatars.hue,
        "json": _json,
        "without_private_key": _without_private_key,
    }
    environment.globals |= {
        "platform": display.PRODUCT,
        "min_password_length": accounts.MIN_PASSWORD_LENGTH,
        "max_password_length": accounts.MAX_PASSWORD_LENGTH,
        "max_name_length": MAX_NAME_LENGTH,
        "mfa_setup_minutes": int(SETUP_TTL.total_seconds() // 60),
        "asset_url": assets.asset_url,
        "icon": icon,
        "image_of": avatars.image_of,
        "image_path": avatars.image_path,
        "provider_logo": avatars.provider_logo,
        "sign_in_methods": labels.sign_in_methods,
        "form_key": partial(token_urlsafe, 16),
        "form_owner": context.form_owner,
        "css": Markup((assets.HTTP / "assets" / "pages.css").read_text("utf-8")),  # noqa: S704  (a file of this package)
    }
    # After the values above, because the macros of ui.html use them.
    environment.globals["ui"] = environment.get_template("ui.html").module
    return environment


@cache
def _template(name: str) -> Template:
    template = _environment().get_template(name)
    template.globals = dict(template.globals)  # every page copies the globals, which takes several times as long from Jinja's ChainMap
    return template


# A part of a key that a refusal's reason may quote. Keys are much longer, and other values rarely have the same part.
_QUOTED: Final = re.compile(r"[A-Za-z0-9+/=_-]{16}")
_KEY_SENT: Final = "A value looks like a private key. Remove it, and send the form again."


def _json(value: object) -> Markup:
    """Return a value as JSON in an attribute with double quotes."""
    return escape(json.dumps(value, separators=(",", ":")))


def _without_private_key(value: object, name: str) -> object:
    """Return the value of the field `name`, or an empty text if this request sent it and it can hold a private key.

    A value that was not sent is a stored value: leaving it out would remove it at the next save.
    """
    is_answer = not has_request_context() or context.current_request().method == "POST"
    return "" if is_answer and isinstance(value, str) and can_hold_private_key(name, value) and _was_sent(value) else value


def _was_sent(value: str) -> bool:
    """Return whether a form in this request has the value, with any spaces and line breaks."""
    text = "".join(value.split())
    return not has_request_context() or any(text in "".join(sent.split()) for sent in g.get("sent_values", ()))


def _without_quoted_key(reason: object) -> object:
    """Return a refusal's reason, or a general reason if it quotes a sent value that can hold a private key."""
    if not (isinstance(reason, str) and has_app_context() and (quoted := _QUOTED.findall(reason))):
        return reason
    keys = ["".join(sent.split()).lower() for sent in g.get("sent_values", ()) if can_hold_private_key("", sent)]
    return _KEY_SENT if any(part.lower() in key for key in keys for part in quoted) else reason


def _ago(time: datetime) -> str:
    """Return a point in time as seen from now."""
    return display.format_ago(time, context.ports().clock.now() if has_app_context() else datetime.now(UTC))


def _exact(time: datetime) -> str:
    """Return a point in time in the user's own time zone, or in UTC."""
    zone = g.get("time_zone") if has_app_context() else None
    return display.format_utc(time) if zone is None else display.format_local(time, zone)


_FIXED = "frame-ancestors 'none'; base-uri 'none'"

# Swagger UI needs scripts and styles from files, and connections to this service.
DOCS_CSP = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; {_FIXED}"
)

# The documentation has a script from a file, and a search form.
DOCUMENTATION_CSP = f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; {_FIXED}"


def render(
    name: str,
    *,
    status: int = 200,
    design: settings.Design | None = None,
    scripted: bool = False,
    polls: bool = False,
    support: SupportContact | None = None,
    image_origin: str | None = None,
    **values: object,
) -> Page:
    """Render a template with `status` and `values`, which are escaped. Every template's first comment lists its values.

    Templates also use the globals above: `platform` is the product's name, and the limits are the core's.

    `design` adds an organization's name, logo and colors; the footer still names the platform. The page may show images
    from `image_origin`, and from the origin of `design`'s logo. A `scripted` page has scripts, and says what to do
    without them. The script on a page that `polls` may request pages from the server. Error pages link to `support`, by
    default to the application's support page. `form_action` says where the template's forms lead.
    """
    nonce = token_urlsafe(16)
    if support is None and has_app_context():  # the edge renders pages outside the application
        support = context.ports().policy.support
    values |= {"design": design, "colors": None, "product": display.PRODUCT, "support": support, "guide": GUIDES.get(name)}
    for reason in ("problem", "message"):
        if reason in values:
            values[reason] = _without_quoted_key(values[reason])
    images = "'self' data:"
    if design is not None:
        values["colors"] = None if design.color is None else settings.derive_palette(design.color)
        if design.name != values.get("organization"):  # such a page's title already names the organization
            values["product"] = design.name
        image_origin = design.logo_origin
    if image_origin is not None:
        images += f" {image_origin}"
    body = _template(name).render(values, status=status, nonce=nonce)
    script = f" script-src 'nonce-{nonce}';" if scripted else ""
    script += " connect-src 'self';" if polls else ""
    policy = f"default-src 'none'; style-src 'nonce-{nonce}';{script} img-src {images}; {form_action(name)}{_FIXED}"
    return _page(body, status, policy, referrer_policy(name))


def email_page(message: EmailMessage, design: settings.Design) -> Page:
    """Return an email's HTML as a page that can do nothing."""
    images = f"'self' data: {design.logo_origin or ''}".strip()
    return _page(
        message.html, 200, f"default-src 'none'; style-src 'unsafe-inline'; img-src {images}; form-action 'none'; sandbox; {_FIXED}"
    )


def docs() -> Page:
    """Return the interactive API page, which reads /openapi.json."""
    return _page(_environment().get_template("docs.html").render(), 200, DOCS_CSP)


def documentation_page(name: str, **values: object) -> Page:
    """Return a documentation page. It is the same for everyone, so a browser can keep it, and asks whether it has changed."""
    page = _page(_environment().get_template(name).render(values, groups=navigation()), 200, DOCUMENTATION_CSP)
    headers = {**page.headers, "Cache-Control": "public, no-cache", "ETag": f'"{sha256(page.body.encode()).hexdigest()[:16]}"'}
    return replace(page, headers=MappingProxyType(headers))


def _page(body: str, status: int, policy: str, referrer: str = "no-referrer") -> Page:
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "Referrer-Policy": referrer,
        "Cache-Control": "no-store",
    }
    return Page(body, status, MappingProxyType(headers))


LEADS_AWAY: Final = "{# leads away #}\n"
SENDS_NOTHING: Final = "{# sends nothing #}\n"  # the comment in a template with a form that only shows how it looks
EXTENDS_BASE: Final = '{% extends "base.html" %}'  # the console's frame has forms, and the other frames have no forms

# Pages that post an answer to an application, or a request to an identity provider. These may check the header Origin, so the browser
# must send it.
POSTING_AWAY: Final = frozenset({"federation/connection_form.html", "federation/form_post.html", "federation/saml_response.html"})


@cache
def form_action(template: str) -> str:
    """Return the directive `form-action` for a template, or an empty text if it has no form."""
    source = (assets.HTTP / "templates" / template).read_text("utf-8")
    if template in POSTING_AWAY or LEADS_AWAY in source:
        return ""
    can_send = SENDS_NOTHING not in source and ("<form" in source or EXTENDS_BASE not in source)
    return f"form-action '{'self' if can_send else 'none'}'; "


def referrer_policy(template: str) -> str:
    """Return the referrer policy for a template. With `no-referrer`, browsers send `Origin: null` with a form."""
    return "strict-origin" if template in POSTING_AWAY else "no-referrer"


@cache
def icon(name: str) -> Markup:
    """Return an icon as SVG. It has the same color as the text beside it, which says the same to screen readers."""
    return Markup(heroicon_outline(name, size=20, **{"class": "icon", "focusable": "false"}))  # noqa: S704  (the file of a package)
