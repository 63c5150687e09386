"""What people call the sessions of our own journal. A program that embeds it resumes them."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="journal",
    reader="thence.agents.thence.reader:Native",
    has_status=False,
    lost_on_resume="Permissions are not restored; thence will ask.",
)
