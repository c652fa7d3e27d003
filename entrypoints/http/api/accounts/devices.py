"""The signed-in user's devices."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import document_response

from core.accounts import devices
from core.accounts.model.devices import DeviceType, ListedDevice
from core.kernel.api_scopes import Area
from entrypoints.http import kit

routes = Blueprint("devices", __name__)


class DeviceResponse(kit.ResponseModel):
    """A device that you have signed in from."""

    id: UUID = Field(description="The id of the device.")
    name: str = Field(description="The name of the device.", examples=["Firefox on Linux"])
    device_type: DeviceType = Field(description="The kind of client.")
    browser: str = Field(description="The browser, from the User-Agent header.", examples=["Firefox"])
    os: str = Field(description="The operating system, from the User-Agent header.", examples=["Linux"])
    last_used_at: kit.Timestamp = Field(description="The time of the last sign-in.")
    methods: list[str] = Field(
        description="The methods of the last sign-in: first and second factor. Empty for the platform's support.",
        examples=[["password", "totp"]],
    )
    last_ip: str | None = Field(description="The IP address of the last sign-in, or null.", examples=["203.0.113.9"])
    is_current: bool = Field(description="Whether this is the device of your session.")
    trusted: bool = Field(description="Whether sign-ins from the device skip the second factor.")
    created_at: kit.Timestamp = Field(description="The time of the first sign-in.")


class LocationResponse(kit.ResponseModel):
    """An IP address's location."""

    city: str | None = Field(description="The name of the city in English, or null.", examples=["Lisbon"])
    country: str = Field(description="The country code (ISO 3166-1 alpha-2).", examples=["PT"])


class DeviceDetailsResponse(DeviceResponse):
    """A device with all its details."""

    browser_version: str | None = Field(description="The version of the browser, or null.", examples=["121.0"])
    os_version: str | None = Field(description="The version of the operating system, or null.", examples=["14.2"])
    last_location: LocationResponse | None = Field(description="The location of the last sign-in, or null if it is unknown.")
    risk_score: float = Field(description="The risk of the last sign-in, from 0.0 to 1.0.", examples=[0.3])


class DeviceListResponse(kit.ResponseModel):
    """Your devices."""

    devices: list[DeviceResponse] = Field(description="The devices, the most recently used first.")
    total: int = Field(description="The number of devices.")


def to_device_response(listed: ListedDevice) -> DeviceResponse:
    device = listed.device
    return DeviceResponse.of(device, is_current=listed.is_current, trusted=listed.trusted)


@routes.get("/api/user/devices")
@kit.person(applications=kit.ApplicationTokens.WITHOUT_OPENID, area=Area.ACCOUNT)
@kit.refuses(404)  # documented, but never sent
@document_response(DeviceListResponse)
async def list_devices() -> Response:
    """List your devices.

    Revoked devices are left out. The list is complete; it has no pages. An application's token with the
    scope `openid` is refused.
    """
    return await kit.stream_list(devices.list_own(kit.ports(), kit.signed_in()), to_device_response, name="devices", count_name="total")


@routes.get("/api/user/devices/<device_id>")
@kit.person(applications=kit.ApplicationTokens.WITHOUT_OPENID, area=Area.ACCOUNT)
@kit.refuses(404)
async def get_device(device_id: UUID) -> DeviceDetailsResponse:
    """Return a device that you have signed in from.

    A revoked device is answered with 404.
    """
    listed = await devices.find(kit.ports(), kit.signed_in(), device_id)
    device, location = listed.device, listed.device.location
    return DeviceDetailsResponse(
        **dict(to_device_response(listed)),
        browser_version=device.browser_version,
        os_version=device.os_version,
        last_location=None if location is None else LocationResponse.of(location),
        risk_score=device.risk.score / 100,
    )


class RenameDeviceRequest(kit.RequestModel):
    """A new name for a device."""

    name: kit.Name = Field(description="The new name.", examples=["Work laptop"])


class RenamedDeviceResponse(kit.ResponseModel):
    """A device with its new name."""

    id: UUID = Field(description="The id of the device.")
    name: str = Field(description="The new name.", examples=["Work laptop"])
    device_type: DeviceType = Field(description="The kind of client.")
    updated_at: kit.Timestamp = Field(description="The time of the change.")


@kit.before_body
async def own_device(device_id: UUID) -> None:
    """Answer 404 if the caller has no device `<device_id>`."""
    await devices.find(kit.ports(), kit.signed_in(), device_id)


@routes.patch("/api/user/devices/<device_id>")
@kit.person(kit.MINE, area=Area.ACCOUNT)
@kit.refuses(404)
@own_device
async def rename_device(device_id: UUID, data: RenameDeviceRequest) -> RenamedDeviceResponse:
    """Rename a device.

    A later sign-in that sends a device name replaces it.
    """
    device = await devices.rename(kit.ports(), kit.signed_in(), device_id, data.name)
    return RenamedDeviceResponse.of(device)


@routes.delete("/api/user/devices/<device_id>")
@kit.person(kit.MINE, area=Area.ACCOUNT)
@kit.refuses(400, 404)
async def revoke_device(device_id: UUID) -> kit.Message:
    """Revoke a device.

    Its sessions and its trust end. You cannot revoke the current device: sign out instead. Revoking
    a device again changes nothing.
    """
    await devices.revoke(kit.ports(), kit.signed_in(), device_id)
    return kit.Message(message="The device was revoked. Its sessions were ended.")
