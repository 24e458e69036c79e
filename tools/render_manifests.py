"""Write deploy/rendered from the kustomize folders, for whoever has no kustomize: `make manifests`.

Only what those folders use is known here (resources, namespace, images, JSON patches); anything else is refused, and a
test keeps the rendered files in step.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
OVERLAYS = ("cpu", "gpu", "kserve")
_KNOWN = {"apiVersion", "kind", "resources", "namespace", "images", "patches"}


def main() -> int:
    """Write each overlay's file."""
    for overlay in OVERLAYS:
        (DEPLOY / "rendered" / f"{overlay}.yaml").write_text(text_of(overlay), encoding="utf-8")
    return 0


def text_of(overlay: str) -> str:
    """The manifests of an overlay as one YAML text."""
    heading = f"# Rendered from deploy/{overlay} by `make manifests`; change that instead.\n"
    return heading + yaml.safe_dump_all(render(DEPLOY / overlay), sort_keys=False, width=120)


def render(folder: Path) -> list[dict[str, Any]]:
    """The manifests that `kustomize build folder` gives.

    Raises:
        ValueError: the folder uses what is not known here.
    """
    rules = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := set(rules) - _KNOWN:
        raise ValueError(f"{folder}: expected {sorted(_KNOWN)}, got {sorted(unknown)} too")
    found: list[dict[str, Any]] = []
    for name in rules["resources"]:
        path = (folder / name).resolve()
        found += render(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    for patch in rules.get("patches", []):
        hit = [one for one in found if (one["kind"], one["metadata"]["name"]) == tuple(patch["target"].values())]
        if not hit:
            raise ValueError(f"{folder}: a patch's target {patch['target']} is not there")
        for one in hit:
            for step in yaml.safe_load(patch["patch"]):
                _apply(one, step)
    for one in found:
        if "namespace" in rules:
            one["metadata"]["namespace"] = rules["namespace"]
        for image in rules.get("images", []):
            _retag(one, image)
    return copy.deepcopy(found)


def _apply(manifest: Any, step: dict[str, Any]) -> None:  # noqa: ANN401 - YAML
    """One step of a JSON patch (RFC 6902): add or replace."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].lstrip("/").split("/"))
    at = manifest
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if step["op"] not in ("add", "replace"):
        raise ValueError(f"expected add or replace, got {step['op']}")
    if isinstance(at, list):
        if last != "-":
            raise ValueError(f"a list is only added to at its end, got {step['path']}")
        at.append(step["value"])
    elif step["op"] == "replace" and last not in at:
        raise ValueError(f"{step['path']} is not there to be replaced")
    else:
        at[last] = step["value"]


def _retag(node: Any, image: dict[str, str]) -> None:  # noqa: ANN401 - YAML
    """Set the image of every container whose image has that name."""
    if isinstance(node, dict):
        if isinstance(node.get("image"), str) and node["image"].partition(":")[0] == image["name"]:
            node["image"] = f"{image['newName']}:{image['newTag']}"
        for value in node.values():
            _retag(value, image)
    elif isinstance(node, list):
        for value in node:
            _retag(value, image)


if __name__ == "__main__":
    sys.exit(main())
