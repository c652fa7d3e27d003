"""Members, their roles, and the transfer of ownership (organizations.md section 4.4)."""

from quart import Blueprint

routes = Blueprint("members", __name__)
