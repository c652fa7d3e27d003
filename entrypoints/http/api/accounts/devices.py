"""The devices that somebody signs in from (identity.md sections 2.5 and 4.3; decisions, points 78 to 85)."""

from functools import wraps
from typing import Any
from uuid import UUID

from quart import Blueprint, Response
from quart_schema import document_response, validate_request, validate_response

from core.accounts import devices
from core.accounts.devices_rules import DeviceType, ListedDevice
from entrypoints.http.edge.access import View, person
from entrypoints.http.edge.bodies import Message, Name, RequestModel, ResponseModel, Timestamp
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import path_id
from entrypoints.http.edge.streaming import streamed

routes = Blueprint("devices", __name__)


class DeviceShown(ResponseModel):
    """A device. `is_current` is the one of this session; on a `trusted` one the second factor is remembered."""

    id: UUID
    name: str
    device_type: DeviceType
    browser: str
    os: str
    last_used_at: Timestamp
    last_ip: str | None
    is_current: bool
    trusted: bool
    created_at: Timestamp


class Location(ResponseModel):
    """A city, by its English name, and a country, by its code (ISO 3166-1)."""

    city: str | None
    country: str


class DeviceDetails(DeviceShown):
    """All that there is to say of a device. `last_location` is null where it is unknown; `risk_score` is 0.0 to 1.0, of the last login."""

    browser_version: str | None
    os_version: str | None
    last_location: Location | None
    risk_score: float


class Devices(ResponseModel):
    """Devices, the one that was used last first, and how many there are."""

    devices: list[DeviceShown]
    total: int


def _show(seen: ListedDevice) -> DeviceShown:
    device = seen.device
    return DeviceShown(
        id=device.id,
        name=device.name,
        device_type=device.device_type,
        browser=device.browser,
        os=device.os,
        last_used_at=device.last_used_at,
        last_ip=device.last_ip,
        is_current=seen.is_current,
        trusted=seen.trusted,
        created_at=device.created_at,
    )


@routes.get("/api/user/devices")
@person(applications=True)
@refuses(404)  # as the documents have it
@document_response(Devices)
async def listed() -> Response:
    """List the devices that you have signed in from and not revoked."""
    return await streamed(devices.list_own(ports(), signed_in()), _show, named="devices", counted="total")


@routes.get("/api/user/devices/<device_id>")
@person(applications=True)
@refuses(404)
@validate_response(DeviceDetails)
async def find(device_id: str) -> DeviceDetails:
    """One of your devices."""
    seen = await devices.find(ports(), signed_in(), path_id(device_id))
    device = seen.device
    return DeviceDetails(
        **dict(_show(seen)),
        browser_version=device.browser_version,
        os_version=device.os_version,
        last_location=None if device.location is None else Location(city=device.location.city, country=device.location.country),
        risk_score=device.risk.score / 100,
    )


class DeviceName(RequestModel):
    """What the device is to be called."""

    name: Name


class DeviceRenamed(ResponseModel):
    """A device with its new name."""

    id: UUID
    name: str
    device_type: DeviceType
    updated_at: Timestamp


def of_the_caller(view: View) -> View:
    """For routes with a body: that the caller has no such device is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(device_id: str, **arguments: Any) -> Any:
        await devices.find(ports(), signed_in(), path_id(device_id))
        return await view(device_id=device_id, **arguments)

    return found


@routes.patch("/api/user/devices/<device_id>")
@person(impersonated=False)
@refuses(404)
@of_the_caller
@validate_request(DeviceName)
@validate_response(DeviceRenamed)
async def rename(device_id: str, data: DeviceName) -> DeviceRenamed:
    """Give one of your devices another name."""
    device = await devices.rename(ports(), signed_in(), path_id(device_id), data.name)
    return DeviceRenamed(id=device.id, name=device.name, device_type=device.device_type, updated_at=device.updated_at)


@routes.delete("/api/user/devices/<device_id>")
@person(impersonated=False)
@refuses(400, 404)
@validate_response(Message)
async def revoke(device_id: str) -> Message:
    """Revoke one of your devices: its sessions and its trust end. The one that you are using is ended by signing out."""
    await devices.revoke(ports(), signed_in(), path_id(device_id))
    return Message(message="The device was revoked. Its sessions were ended.")
