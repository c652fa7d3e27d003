"""The identity providers by which organizations know a user."""

from typing import LiteralString


def linked_providers(user: LiteralString, org: LiteralString) -> LiteralString:
    """Return the SQL for the providers that are linked for the user in the account itself, or at an application in the organization."""
    return f"""
        array(select distinct i.provider from identities i left join services x on x.id = i.service_id
              where i.user_id = {user} and (i.service_id is null or x.org_id = {org}))"""
