"""An organization's set-up links, for a customer's IT department."""

from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.federation.connections.model.connections import ConnectionProblem
from core.kernel.callers import SetupPart
from core.kernel.page_paths import SETUP_PATH
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.setup import applying, connection, links
from core.setup.links import SetupLinkDraft
from core.setup.model.links import MAX_DAYS, SetupLinkDetails, SetupLinkEnd, SetupLinkKind, SetupLinkState, SetupPartUnknown, SetupProposal
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.checks import ConnectionProblemResponse
from entrypoints.http.base.context import app_context

routes = Blueprint("setup_links", __name__)

PATH: Final = "/api/organizations/<org_slug>/setup-links"
ONE: Final = f"{PATH}/<setup_link_id>"
APPLY: Final = f"{ONE}/parts/<setup_part>/apply"


class SetupLinkRequest(kit.RequestModel):
    """A new set-up link."""

    name: kit.Name = Field(description="The name of the link, such as the customer's. The audit log shows it.", examples=["Globex IT"])
    kind: Annotated[SetupLinkKind, Field(strict=False)] = Field(
        description="`embedded` to lead a browser to it within five minutes, or `mailed` to send it to `recipient`, who also gets a code."
    )
    parts: Annotated[list[Annotated[SetupPart, Field(strict=False)]], Field(min_length=1, max_length=len(SetupPart))] = Field(
        description="The parts that the reader prepares."
    )
    recipient: kit.EmailAddress | None = Field(default=None, description="The address to which a mailed link and its codes are sent.")
    connection: kit.Text | None = Field(
        default=None,
        description="The slug of the SAML connection for which the reader renews the certificate, with the part `certificate`.",
    )
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] | None = Field(
        default=None,
        description="The days until a mailed link expires. The default is 7, or fewer if the operator allows no more.",
    )
    return_url: kit.Text | None = Field(
        default=None,
        description="The page in an application to which the reader returns at the end, at the origin of a redirect URI or launch URL.",
        examples=["https://app.example.com/settings/sso"],
    )

    def build(self) -> SetupLinkDraft:
        """Return the link's values."""
        return SetupLinkDraft(**{**dict(self), "recipient": None if self.recipient is None else Email.parse(self.recipient)})


class SetupPartRequest(kit.RequestModel):
    """A proposal to apply."""

    changed_at: kit.DateTime | None = Field(
        default=None, description="When the proposal that you looked at was last changed. Without it, the newest proposal is applied."
    )


class SetupLinkResponse(kit.ResponseModel):
    """A set-up link without its secret."""

    id: UUID = Field(description="The id of the link.")
    name: str = Field(description="The name of the link.", examples=["Globex IT"])
    kind: SetupLinkKind = Field(description="How the link reaches its reader.")
    parts: list[SetupPart] = Field(description="The parts that the reader prepares.")
    recipient: str | None = Field(description="The address to which a mailed link and its codes are sent, or null.")
    state: SetupLinkState = Field(description="The state of the link.")
    ended_by: SetupLinkEnd | None = Field(
        description="Why it ended before its expiry, or null. `codes` means that five codes were tried, and `rights` that its creator "
        "may no longer create it."
    )
    connection_id: UUID | None = Field(description="The id of the connection for which a certificate is renewed, or null.")
    return_url: str | None = Field(description="The page of an application to which the reader returns at the end, or null.")
    created_at: kit.Timestamp = Field(description="The time when the link was created, in UTC.")
    created_by: UUID = Field(description="The id of the member or the service account that created the link.")
    expires_at: kit.Timestamp = Field(
        description="The time until which the link can be opened, or used in the browser that opened it, in UTC."
    )
    opened_at: kit.Timestamp | None = Field(description="The time when a browser opened the link, in UTC, or null.")
    opened_address: str | None = Field(description="The IP address of this browser, or null.")
    opened_agent: str | None = Field(description="The User-Agent header of this browser, or null.")


class CreatedSetupLinkResponse(SetupLinkResponse):
    """A new set-up link with its address. Only this response contains the address."""

    url: str = Field(description="The address of the link. It is returned only once.")


class SetupPartResponse(kit.ResponseModel):
    """What the link's reader proposes for a part."""

    part: SetupPart = Field(description="The part.")
    is_ready: bool = Field(description="Whether an admin can apply it.")
    changed_at: kit.Timestamp = Field(description="The time of the last change by the reader, in UTC.")
    domains: list[str] = Field(description="The proposed domains. Other parts have no domains.")
    preset: str | None = Field(description="The proposed connection's product, or null for an unlisted product and for other parts.")
    protocol: str | None = Field(description="The proposed connection's protocol, `oidc` or `saml`, or null for other parts.")
    identifier: str | None = Field(description="Its issuer or entity ID, or null.")
    fingerprints: list[str] = Field(description="The renewed certificates' SHA-256 fingerprints. Other parts have no fingerprints.")
    problems: list[ConnectionProblemResponse] = Field(
        description="The problems that the last check found, and proposed certificates that are not valid now."
    )
    endpoint_url: str | None = Field(description="The proposed SIEM's URL, or null for other parts.")
    token_prefix: str | None = Field(description="The proposed SCIM token's first characters, or null for other parts.")
    first_request_at: kit.Timestamp | None = Field(
        description="The time of the first request with this token before it was applied, or null."
    )
    first_request: str | None = Field(description="This request, or null.", examples=["GET /scim/v2/ServiceProviderConfig"])
    applied_at: kit.Timestamp | None = Field(description="The time when an admin applied it, in UTC, or null.")
    applied_by: UUID | None = Field(description="The id of the member or the service account that applied it, or null.")


class SetupLinkDetailsResponse(SetupLinkResponse):
    """A set-up link with its progress."""

    proposals: list[SetupPartResponse] = Field(description="The proposals of the reader. None has an effect before it is applied.")


class SetupLinkListResponse(kit.ResponseModel):
    """An organization's set-up links."""

    setup_links: list[SetupLinkResponse] = Field(description="The links, newest first. Links that ended stay for 30 days.")


@routes.post(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(429)
@kit.returns(201)
async def create(org_slug: str, data: SetupLinkRequest) -> CreatedSetupLinkResponse:
    """Create a set-up link.

    Its reader needs no account, and prepares the chosen parts. An admin then applies them. The address is returned only once.
    """
    link, secret = await links.create(kit.ports(), kit.acting(), data.build())
    return CreatedSetupLinkResponse.of(link, state=link.state(kit.ports().clock.now()), url=url_of(secret))


def url_of(secret: str) -> str:
    """Return a link's address."""
    return f"{app_context().base_url}{SETUP_PATH}?token={secret}"


@routes.get(PATH)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_links(org_slug: str) -> SetupLinkListResponse:
    """List the set-up links.

    Their addresses are not returned.
    """
    listed, now = await links.list_own(kit.ports(), kit.acting()), kit.ports().clock.now()
    return SetupLinkListResponse(setup_links=[SetupLinkResponse.of(link, state=link.state(now)) for link in listed])


@routes.get(ONE)
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get(org_slug: str, setup_link_id: UUID) -> SetupLinkDetailsResponse:
    """Get a set-up link with its progress.

    It has what its reader proposes, without secrets.
    """
    return await _to_details(await links.find(kit.ports(), kit.acting(), setup_link_id))


@routes.delete(ONE)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The link is ended."})
async def end(org_slug: str, setup_link_id: UUID) -> None:
    """End a set-up link.

    Its browser is refused from the next request on. Its proposals are deleted, also if the link has ended or expired. Applied parts stay.
    """
    await links.end(kit.ports(), kit.acting(), setup_link_id)


@routes.post(APPLY)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(400, 409)
async def apply(org_slug: str, setup_link_id: UUID, setup_part: str, data: SetupPartRequest) -> SetupLinkDetailsResponse:
    """Apply a set-up link's proposal for a part.

    The caller needs the rights that making it themselves would need. A domain is looked up again. A SCIM token, a certificate or a SIEM
    works from now on. Send the `changed_at` from the proposal that you looked at: 409 if its reader has changed it since.
    """
    return await _to_details(await applying.apply(kit.ports(), kit.acting(), setup_link_id, part_of_path(setup_part), data.changed_at))


def part_of_path(text: str) -> SetupPart:
    """Return the part in a path."""
    try:
        return SetupPart(text)
    except ValueError:
        raise SetupPartUnknown from None


async def _to_details(details: SetupLinkDetails) -> SetupLinkDetailsResponse:
    problems = await connection.find_problems(kit.ports(), details.proposals.values())
    return SetupLinkDetailsResponse.of(
        details.link,
        state=details.link.state(kit.ports().clock.now()),
        proposals=[_to_part(proposal, problems[part]) for part, proposal in details.proposals.items()],
    )


def _to_part(proposal: SetupProposal, problems: Sequence[ConnectionProblem]) -> SetupPartResponse:
    return SetupPartResponse.of(
        proposal,
        domains=[each.domain for each in proposal.document.domains],
        preset=proposal.document.preset,
        protocol=proposal.document.protocol,
        identifier=proposal.document.issuer or proposal.document.entity_id,
        fingerprints=list(proposal.document.fingerprints),
        problems=ConnectionProblemResponse.list_of(problems),
        endpoint_url=proposal.document.endpoint_url,
        token_prefix=proposal.document.prefix,
        first_request_at=proposal.tried_at,
        first_request=proposal.tried_with,
    )
