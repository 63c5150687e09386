"""What packages offer: others are seen by their files, ours are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.agents.packages import others_offer

GROUP = "thence.agents"


def test_ours_alone_are_no_others() -> None:
    """They are folders of this package, and no entry points."""
    assert not others_offer(GROUP)


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
