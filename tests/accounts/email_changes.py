"""Changes to an account's email address, from the request to the links in the two emails."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from core.accounts.model.accounts import PROOF_TTL
from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest, new_id
from ports import Ports
from ports.outside import EmailMessage
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import EMAIL, Answer, Api, deliver, link

FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
UNDO: Final = "/auth/undo"


async def open_proof(api: Api, token: str) -> Answer:
    """Open the link in the email to the new address."""
    return await api.get(f"/auth/verify-email?token={token}")


async def undo(api: Api, token: str, start: str | None = None) -> Answer:
    """Send the form behind an undo link, with the first change to undo."""
    fields = {"token": token} if start is None else {"token": token, "start": start}
    return await api.call("POST", UNDO, raw=urlencode(fields).encode(), headers=FORM)


@dataclass(slots=True)
class EmailChanger:
    """A user who changes their email address."""

    api: Api
    ports: Ports
    sent: FakeMailTransport

    async def request(self, token: str, email: str, *, old: str = EMAIL) -> tuple[str, str]:
        """Request another address. Return the tokens for the proof link and the undo link."""
        answer = await self.api.patch("/api/user", {"email": email}, token=token)
        assert (answer.status, answer.json["email"], answer.json["pending_email"]) == (200, old, email), answer.text
        proof = (await self.emails(email))[-1]
        [*_, notice] = [email for email in self.sent.emails if email.subject.startswith("Your email address") and UNDO in email.text]
        return link(proof), link(notice)

    async def change(self, token: str, email: str, *, old: str = EMAIL) -> str:
        """Request another address and prove it. Return the undo link's token."""
        proof, undo_token = await self.request(token, email, old=old)
        assert (await open_proof(self.api, proof)).status == 200
        return undo_token

    async def emails(self, to: str) -> list[EmailMessage]:
        """Deliver all due emails, and return the emails to this address."""
        await deliver(self.ports)
        return [email for email in self.sent.emails if email.to == to]


async def change_email(api: Api, ports: Ports, token: str, email: str) -> Answer:
    """Request another address and prove it, without emails. Return the first refusal, or the page after the proof."""
    answer = await api.patch("/api/user", {"email": email}, token=token)
    if answer.status != 200:
        return answer
    user_id, proof, now = UUID(answer.json["id"]), str(new_id()), ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.one_time_tokens.add(
            OneTimeToken(digest(proof), TokenPurpose.VERIFY_EMAIL, user_id, Email(email), created_at=now, expires_at=now + PROOF_TTL)
        )
    return await open_proof(api, proof)
