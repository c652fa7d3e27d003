"""Invitations, for those who invite and for those who are invited (organizations.md section 4.7)."""

from quart import Blueprint

routes = Blueprint("invitations", __name__)
