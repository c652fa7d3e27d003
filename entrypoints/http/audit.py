"""The audit log of an organization (organizations.md section 4.9)."""

from quart import Blueprint

routes = Blueprint("audit", __name__)
