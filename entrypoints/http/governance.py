"""Tiers and the lifecycle of organizations, for platform owners (organizations.md section 4.6)."""

from quart import Blueprint

routes = Blueprint("governance", __name__)
