"""What packages offer: others are seen by their files, ours are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.agents.packages import entry_points, others_offer

GROUP = "thence.agents"


def test_ours_alone_are_no_others() -> None:
    """The names and places that this package declares."""
    assert not others_offer(GROUP)
    names = (
        "claude cline codex continue copilot droid gemini goose grok hermes kilo kimi opencode pi"
        " qwen thence vibe"
    )
    assert names.split() == [point.name for point in entry_points(GROUP)]


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_another_package_is_seen_by_its_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its own group; folders of the path that are not there cost nothing."""
    place = tmp_path / f"theirs-1.0.{kind}"
    place.mkdir()
    (place / "entry_points.txt").write_text("[thence.stores]\nmine = theirs:Store\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "nowhere")

    assert others_offer("thence.stores")
    assert not others_offer(GROUP)
