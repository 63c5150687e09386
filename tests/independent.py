"""Programs beside the clone that know nothing of this code, as modules: they are its judges."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def tool(shared: Path, name: str) -> ModuleType:
    """Load one of them. It gets a name of its own: one is called like a package of ours."""
    path = shared / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"shared_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
