#!/usr/bin/env python3
"""Joins the artefacts of several machines into those of one release: one folder, one image for all
machines, one file of sums."""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Failure, below, tar, write_sums
from image import INDEX, blob, document

IMAGE = re.compile(r"(posthaste-.+-oci)-\w+(\.tar)?")


def take_image(layout, out):
    """Copies all but its index, and answers the manifests in that index, and its name."""
    shutil.copytree(layout / "blobs", out / "blobs", dirs_exist_ok=True)
    shutil.copy(layout / "oci-layout", out)
    first = json.loads((layout / "index.json").read_text())["manifests"][0]
    index = out / "blobs" / first["digest"].replace(":", "/")
    found = json.loads(index.read_text())["manifests"]
    index.unlink()
    return found, first["annotations"]


def join_images(layouts, out):
    found = [take_image(layout, out) for layout in layouts]
    names = [name for _, name in found]
    if any(name != names[0] for name in names):
        raise Failure(f"the images are of different versions: {names}")
    everything = [manifest for made, _ in found for manifest in made]
    machines = [manifest["platform"]["architecture"] for manifest in everything]
    if len(set(machines)) != len(machines):
        raise Failure(f"two images are for the same machine: {machines}")
    index = blob(out, INDEX, document({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": everything,
    }))
    (out / "index.json").write_bytes(document({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [{**index, "annotations": names[0]}],
    }))


def join(folders, out):
    out.mkdir(parents=True)
    layouts = {}
    for folder in folders:
        for path in sorted(folder.iterdir()):
            image = IMAGE.fullmatch(path.name)
            if image:
                if path.is_dir():
                    layouts.setdefault(image[1], []).append(path)
                continue
            if path.name == "SHA256SUMS":
                continue
            there = out / path.name
            # The package for npm that has no binary, and the changes, come from every machine.
            if there.exists() and there.read_bytes() != path.read_bytes():
                raise Failure(f"{path.name} of {folder} is not that of another machine")
            shutil.copy(path, there)
    if len(layouts) != 1:
        raise Failure(f"there is not one image in {folders}: {sorted(layouts)}")
    for name, parts in layouts.items():
        layout = out / name
        layout.mkdir()
        join_images(parts, layout)
        (out / f"{name}.tar").write_bytes(tar(below(layout, "."), 0))
        shutil.rmtree(layout)
    write_sums(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER",
                        help="artefacts of one machine")
    options = parser.parse_args()
    try:
        join(options.folders, options.out)
    except Failure as failure:
        sys.exit(f"join: {failure}")
