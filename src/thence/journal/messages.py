"""Messages recorded by name: what is said goes in, a payload of the right form is recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from thence.format.records import JSON
from thence.journal.arguments import Amount, Content, Names, checked, checks_itself

R = TypeVar("R")


@checked
class MessageRecorder(ABC, Generic[R]):
    """A channel that messages are recorded in; `record` says what of it is returned."""

    @checks_itself
    @abstractmethod
    def record(self, kind: str, payload: JSON) -> R:
        """Append one event."""

    def user(self, content: Content) -> R:
        """Record what the user said: text, or blocks. Returns what `record` returns."""
        return self.record("user", {"role": "user", "content": content})

    def assistant(
        self,
        content: Content,
        *,
        usage: Names | None = None,
        cost_usd: Amount | None = None,
        model: str | None = None,
        response_id: str | None = None,
        stop_reason: str | None = None,
    ) -> R:
        """Record what the model said and what it took. Returns what `record` returns.

        Parts of one response that are recorded one by one have the same `response_id`: they are
        one message for the model, and their bill counts once.
        """
        about = {
            "id": response_id,
            "model": model,
            "stop_reason": stop_reason,
            "usage": usage,
            "cost_usd": cost_usd,
        }
        known = {name: value for name, value in about.items() if value is not None}
        return self.record("assistant", {"role": "assistant", "content": content, **known})

    def tool_result(self, call_id: str, content: Content, *, failed: bool = False) -> R:
        """Record what a tool returned for a call. Returns what `record` returns."""
        block: Names = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        if failed:
            block["is_error"] = True
        return self.record("user", {"role": "user", "content": [block]})
