"""Organizations as their members see them, and selecting one (organizations.md section 4.4; decisions, points 204 to 207)."""

from quart import Blueprint

routes = Blueprint("organizations", __name__)
