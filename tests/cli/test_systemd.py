"""`thence setup --service` with a real systemd: the units start, work, and go again.

The systemd of a user runs in namespaces of its own, so that the one of this machine, if there is
one, hears nothing of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.memory import logs

SYSTEMD = Path("/lib/systemd/systemd")
THENCE = Path(sys.executable).parent / "thence"
MAX_MEMORY_KB = 80_000_000 >> 10
"""Memory that the viewer may use at rest, after it has imported sessions."""
IS_POSSIBLE = (
    os.geteuid() == 0 and SYSTEMD.exists() and bool(shutil.which("unshare") and shutil.which("ip"))
)

STORY = """
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
"$SYSTEMD" --user --log-target=null &

ask() { systemctl --user "$@" 2>/dev/null; }
both() { echo "$(ask is-active "$1") $(ask is-enabled "$1")"; }
stored() { "$THENCE" ls --json | grep -c '"session_uid"'; }
memory_kb() { awk '/VmRSS/ {print $2}' "/proc/$(ask show -p MainPID --value thence-serve)/status"; }
wait_for() {
    for _ in $(seq 300); do if eval "$1"; then return; fi; sleep 0.1; done
    echo "never: $1"
}

wait_for '[ "$(ask is-system-running)" = running ]'
"$THENCE" setup --yes --service >/dev/null || echo "setup failed: $?"
echo "service $(both thence-serve)"
echo "timer $(both thence-sweep.timer)"
wait_for '[ "$(stored)" = 1 ]'
cp "$HOME"/later/*.jsonl "$LOGS"
wait_for '[ "$(stored)" = 2 ]'
echo "stored $(stored)"
ask start thence-sweep.service
echo "sweep $(ask show -p Result --value thence-sweep.service)"
"$THENCE" doctor --json | grep -q 'as thence setup left them' && echo "doctor agrees"
wait_for '[ "$(memory_kb)" -lt "$MAX_MEMORY_KB" ]'
"$THENCE" setup --remove --yes >/dev/null || echo "removal failed: $?"
echo "after $(ask is-active thence-serve) $(ask is-active thence-sweep.timer)"
find "$HOME/.config" -name 'thence*' -printf 'left %p'
"""


@pytest.mark.slow
@pytest.mark.skipif(not IS_POSSIBLE, reason="needs systemd, ip, and root to give it namespaces")
def test_service_and_timer_run_under_a_real_systemd(tmp_path: Path) -> None:
    """What is written while the viewer runs is stored by it; it stays small; all of it goes."""
    home, later = tmp_path / "home", tmp_path / "home" / "later"
    first, second = (logs.script(number, 3) for number in (1, 2))
    logs.write(home / ".claude", first)
    _write(later, second)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "SHELL": "/bin/bash",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "LOGS": str(logs.path(home / ".claude", first).parent),
        "SYSTEMD": str(SYSTEMD),
        "THENCE": str(THENCE),
        "MAX_MEMORY_KB": str(MAX_MEMORY_KB),
    }
    namespaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    ran = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", STORY],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert [
        "service active enabled",
        "timer active enabled",
        "stored 2",
        "sweep success",
        "doctor agrees",
        "after inactive inactive",
    ] == ran.stdout.splitlines(), ran


def _write(folder: Path, script: Script) -> None:
    """Write a log into a folder of its own."""
    logs.write(folder.parent / "other", script)
    shutil.copytree(logs.path(folder.parent / "other", script).parent, folder)
