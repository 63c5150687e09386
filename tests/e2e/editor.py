"""An editor of the Agent Client Protocol, as small as can be: one session, some prompts.

`python -m tests.e2e.editor PROMPT… -- COMMAND…` runs a command as its agent, allows what it asks
for, and writes every line that it gets to stdout.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

END_S = 20.0


class Editor:
    """The editor's end of a connection."""

    def __init__(self, command: list[str]) -> None:
        self._agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._numbers = itertools.count()

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request; answer what the agent asks meanwhile."""
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        assert self._agent.stdout is not None
        for line in self._agent.stdout:
            sys.stdout.buffer.write(line)
            message = json.loads(line)
            if "method" in message and "id" in message:
                self._send({"id": message["id"], **_answer(message)})
            elif message.get("id") == number and "method" not in message:
                assert "result" in message, message
                return message["result"]
        raise AssertionError(f"the agent ended before it answered {method}")

    def close(self) -> None:
        """End the agent; what it says last is written out, too."""
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        self._agent.stdin.close()
        try:
            self._agent.wait(END_S)
        except subprocess.TimeoutExpired:
            self._agent.terminate()
        sys.stdout.buffer.write(self._agent.stdout.read())
        self._agent.wait()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._agent.stdin is not None
        self._agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._agent.stdin.flush()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    """Allow a call once; refuse files and terminals, which were not offered."""
    if message["method"] != "session/request_permission":
        return {"error": {"code": -32601, "message": "not offered"}}
    options = message["params"]["options"]
    chosen = next(option for option in options if option["kind"] == "allow_once")
    return {"result": {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}}


def main() -> None:
    """Hold a session."""
    words = sys.argv[1:]
    split = words.index("--")
    editor = Editor(words[split + 1 :])
    editor.ask("initialize", protocolVersion=1, clientCapabilities={})
    session = editor.ask("session/new", cwd=str(Path.cwd()), mcpServers=[])["sessionId"]
    for prompt in words[:split]:
        editor.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": prompt}])
    editor.close()


if __name__ == "__main__":
    main()
