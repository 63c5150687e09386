"""Print what a wheel is made of, as CycloneDX JSON: packages it needs, and parts that it contains.

    .venv/bin/python scripts/sbom.py dist/thence-X.Y.Z-py3-none-any.whl >dist/thence-X.Y.Z.cdx.json

Packages are those of the base install, in the versions of this environment (constraints.txt). The
same commit gives the same bytes: the time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Component = dict[str, Any]

HTMX = "thence/serve/web/static/htmx.min.js"
HTMX_LICENSE = "thence/serve/web/static/htmx-license.txt"
PRICES = "thence/memory/prices.json"
RULES = "thence/memory/rules.py"


def main(path: Path) -> None:
    """Print the bill of materials of a wheel."""
    print(json.dumps(bill_of(path), indent=1, sort_keys=True))


def bill_of(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel."""
    about = wheel_metadata(wheel)
    graph = dependencies(wheel)
    packages = {name: package(name) for name in sorted(graph) if name}
    parts = contained(wheel)
    root = {
        "bom-ref": f"pkg:pypi/{about['Name']}@{about['Version']}",
        "type": "application",
        "name": about["Name"],
        "version": about["Version"],
        "licenses": [{"license": {"id": about["License-Expression"]}}],
        "hashes": [sha256(wheel.read_bytes())],
    }
    references = {name: component["bom-ref"] for name, component in packages.items()}
    references[""] = root["bom-ref"]
    needs = {references[name]: [references[n] for n in sorted(graph[name])] for name in references}
    needs[root["bom-ref"]] += [component["bom-ref"] for component in parts]
    components = [*packages.values(), *parts]
    timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, json.dumps([root, components]))}",
        "version": 1,
        "metadata": {"timestamp": timestamp.isoformat(), "component": root},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": on} for ref, on in needs.items()],
    }


def dependencies(wheel: Path) -> dict[str, set[str]]:
    """Return what a wheel needs here, without extras: each distribution with what it needs itself.

    The wheel's own needs are under the empty name.
    """
    graph: dict[str, set[str]] = {"": set()}
    seen = {("", "")}
    due = [("", "", line) for line in wheel_metadata(wheel).get_all("Requires-Dist", [])]
    while due:
        owner, extra, line = due.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        graph[owner].add(name)
        graph.setdefault(name, set())
        for more in {"", *requirement.extras}:
            if (name, more) not in seen:
                seen.add((name, more))
                due += [(name, more, line) for line in metadata.requires(name) or ()]
    return graph


def package(name: str) -> Component:
    """Return the component of an installed distribution."""
    about = metadata.metadata(name)
    component: Component = {
        "bom-ref": f"pkg:pypi/{name}@{about['Version']}",
        "type": "library",
        "name": name,
        "version": about["Version"],
        "purl": f"pkg:pypi/{name}@{about['Version']}",
    }
    if "License-Expression" in about:
        component["licenses"] = [{"expression": about["License-Expression"]}]
    return component


def contained(wheel: Path) -> list[Component]:
    """Return the parts of other projects that the wheel contains or was made from."""
    with zipfile.ZipFile(wheel) as archive:
        htmx, rules, prices = (archive.read(name) for name in (HTMX, RULES, PRICES))
        htmx_version = archive.read(HTMX_LICENSE).decode().split(",")[0].removeprefix("htmx ")
    prices_version = json.loads(prices)["source"].split(",")[0].removeprefix("genai-prices ")
    return [
        part("npm/htmx.org", htmx_version, "0BSD", HTMX, htmx),
        part("pypi/genai-prices", prices_version, "MIT", PRICES, prices),
        # Facts about secrets, not its code: there is no version of it in the wheel.
        part("github/gitleaks/gitleaks", "", "MIT", RULES, rules),
    ]


def part(purl: str, version: str, license_id: str, path: str, body: bytes) -> Component:
    """Return the component of a file that the wheel contains."""
    address = f"pkg:{purl}@{version}" if version else f"pkg:{purl}"
    component = {
        "bom-ref": f"{address}#{path}",
        "type": "library",
        "name": purl.rpartition("/")[2],
        "purl": address,
        "licenses": [{"license": {"id": license_id}}],
        "hashes": [sha256(body)],
        "evidence": {"occurrences": [{"location": path}]},
    }
    return component | ({"version": version} if version else {})


def wheel_metadata(wheel: Path) -> Message:
    """Return the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def sha256(body: bytes) -> dict[str, str]:
    """Return a hash as CycloneDX writes it."""
    return {"alg": "SHA-256", "content": hashlib.sha256(body).hexdigest()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
