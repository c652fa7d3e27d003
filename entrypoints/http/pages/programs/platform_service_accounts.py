"""The pages for the platform's service accounts: the list, an account with its settings, and its credentials."""

from quart import Blueprint

from entrypoints.http import kit
from entrypoints.http.pages.programs import service_account_views

routes = Blueprint("platform_service_account_pages", __name__)

service_account_views.declare(
    routes, service_account_views.PLATFORM_LIST, "/api/platform/service-accounts", kit.platform_page, kit.platform_page(kit.OWNS)
)
