"""A user who manages a second factor."""

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import CodeWrong
from core.authentication.model.login import PreAuthInvalid
from core.kernel.callers import Person
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import Answer, Api, run_sql
from tests.support.mfa import Authenticator, show

PATH = "/api/user/mfa"


class MfaUser:
    """A signed-in user."""

    def __init__(self, api: Api, ports: Ports, account: Account, token: str) -> None:
        self.api, self.ports, self.account, self.token = api, ports, account, token

    @property
    def person(self) -> Person:
        return Person(user_id=self.account.id, email=self.account.email, session_id=new_id())

    async def status(self) -> tuple[bool, bool]:
        answer = await self.api.get(f"{PATH}/status", token=self.token)
        assert answer.status == 200, answer.text
        assert answer.json.keys() == {"enabled", "methods", "has_backup_codes"}
        assert bool(answer.json["methods"]) is answer.json["enabled"]
        return answer.json["enabled"], answer.json["has_backup_codes"]

    async def setup(self) -> Answer:
        return await self.api.post(f"{PATH}/setup", token=self.token)

    async def start_setup(self) -> Authenticator:
        answer = await self.setup()
        assert answer.status == 200, answer.text
        return Authenticator(answer.json["secret"], self.ports.clock)

    async def verify(self, code: object) -> Answer:
        return await self.api.post(f"{PATH}/verify", {"code": code}, token=self.token)

    async def enable(self) -> Authenticator:
        """Enable the second factor. Return the app with the backup codes; its current code is used up."""
        app = await self.start_setup()
        answer = await self.verify(app.code())
        assert answer.status == 200, answer.text
        app.backup_codes = answer.json["backup_codes"]
        return app

    async def disable(self) -> Answer:
        return await self.api.delete(PATH, token=self.token)

    async def regenerate(self) -> Answer:
        return await self.api.post(f"{PATH}/backup-codes/regenerate", token=self.token)

    async def use_code(self, code: str) -> None:
        """Use a code in a pending sign-in."""
        await show(self.ports, self.account, code)

    async def accepts_code(self, code: str) -> bool:
        try:
            await self.use_code(code)
        except (CodeWrong, PreAuthInvalid):  # PreAuthInvalid if the sign-in needs no code any longer
            return False
        return True


async def logged_events(pool: Pool) -> list[str]:
    return [event for (event,) in await run_sql(pool, "select event_type from mfa_events order by created_at, id")]


async def queued_emails(pool: Pool) -> list[tuple[str, str]]:
    return [(kind, address) for kind, address in await run_sql(pool, "select kind, address from mails order by created_at")]
