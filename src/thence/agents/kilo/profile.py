"""What people call Kilo, and how it resumes a session."""

from __future__ import annotations

from thence.agents.profiles import Profile

PROFILE = Profile(
    label="Kilo",
    reader="thence.agents.kilo.reader:Kilo",
    usual_folders=(".local/share/kilo",),
    has_status=False,
    colours=("#8a6d00", "#d6bd4a"),
    newest_version="7.7",
    resume_option=("kilo", "--session"),
    home_variable="XDG_DATA_HOME",
    rewind_hint="in Kilo: /undo",
    home_is_parent=True,
    more_variables=("KILO_DB",),
)
