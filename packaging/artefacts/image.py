"""The container image, as an OCI layout made without a daemon.

It has the binary, the files of the C library that it loads, the certificate authorities and nothing
else: no shell, no package manager. A static C library (musl) would need a binary of its own, with
another resolver and allocator; a few files of Debian's libc6 keep one binary for all artefacts.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path

from common import (LICENCES, NOTICES, PACKAGING, SUMMARY, Entry, Failure, below, environment,
                    gzipped, megabytes, run, tar)

BYTES_MAX = 30_000_000
# The number of distroless images: no user of the host has it.
USER = 65532
PROGRAM = "/usr/bin/posthaste"
SECOND = 1_000_000_000
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def build(release):
    layout = release.out / f"posthaste-{release.version}-oci-{release.name('oci')}"
    shutil.rmtree(layout, ignore_errors=True)
    (layout / "blobs/sha256").mkdir(parents=True)
    libraries, packages = c_library(release.binary)
    layer = tar([*files(release, libraries, packages)], release.time)
    if release.portable and len(layer) > BYTES_MAX:
        raise Failure(f"the image has {megabytes(len(layer))}, more than {megabytes(BYTES_MAX)}")
    described = manifest(release, layout, layer, packages)
    described["platform"] = {"architecture": release.name("oci"), "os": "linux"}
    # The other machines' manifests are added to this index when the release is put together.
    index = blob(layout, INDEX, document({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [described],
    }))
    index["annotations"] = {"org.opencontainers.image.ref.name": release.version}
    (layout / "index.json").write_bytes(document({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [index],
    }))
    (layout / "oci-layout").write_bytes(document({"imageLayoutVersion": "1.0.0"}))
    archive = release.out / f"{layout.name}.tar"
    archive.write_bytes(tar(below(layout, "."), release.time))
    release.artefact(layout, f"{megabytes(len(layer))} unpacked")
    release.artefact(archive, *(f"{name} {version}" for name, version in packages.items()))


def c_library(binary):
    """The files that the loader opens for the binary here, and the packages that they are from."""
    loaded = run("ldd", binary)
    paths = [Path(found) for found in re.findall(r"(/\S+) \(0x", loaded)]
    packages = {}
    for path in paths:
        # The package knows the path before or after the merge of /lib with /usr/lib.
        for known in [path, Path("/usr") / path.relative_to("/"), path.resolve()]:
            try:
                name = run("dpkg-query", "--search", known).split(":")[0]
            except Failure:
                continue
            packages[name] = run("dpkg-query", "--showformat=${Version}", "--show",
                                 name).strip()
            break
        else:
            raise Failure(f"no package of this machine has {path}; build the image on Debian or "
                          "Ubuntu")
    version = re.match(r"(\d+)\.(\d+)", packages.get("libc6", ""))
    if not version or tuple(map(int, version.groups())) < (2, 34):
        raise Failure(f"the image needs libc6 2.34 or later, which resolves names by itself; here "
                      f"are {packages}")
    return paths, packages


def files(release, libraries, packages):
    authorities = run(environment("checks", PACKAGING / "requirements.txt") / "python", "-m",
                      "certifi").strip()
    entries = [
        Entry.of(PROGRAM, release.binary, 0o755),
        *(Entry.of(str(path), path, 0o755) for path in libraries),
        Entry.of("/etc/ssl/certs/ca-certificates.crt", authorities),
        Entry("/etc/passwd", f"posthaste:x:{USER}:{USER}::/:/nonexistent\n".encode()),
        Entry("/etc/group", f"posthaste:x:{USER}:\n".encode()),
        Entry("/etc/nsswitch.conf", b"hosts: files dns\n"),
        *(Entry.of(f"/usr/share/doc/posthaste/{name}", release.licence(name))
          for name in [*LICENCES, NOTICES]),
        *(Entry.of(f"/usr/share/doc/{name}/copyright", f"/usr/share/doc/{name}/copyright")
          for name in packages),
    ]
    # Folders too: a layer that leaves them to the unpacker has no fixed owner and mode.
    folders = {str(folder) for entry in entries for folder in Path(entry.name).parents} - {"/"}
    entries += [Entry(folder, mode=0o755) for folder in folders]
    entries.append(Entry("/tmp", mode=0o1777))
    for entry in entries:
        entry.name = entry.name.lstrip("/")
    return entries


def manifest(release, layout, layer, packages):
    labels = {
        "org.opencontainers.image.title": "posthaste",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": release.timestamp,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        **({"org.opencontainers.image.source": release.repository} if release.repository else {}),
    }
    config = blob(layout, CONFIG, document({
        "created": release.timestamp,
        "architecture": release.name("oci"),
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": [PROGRAM],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/tmp",
            "StopSignal": "SIGTERM",
            "Labels": labels,
            # Docker's addition to the format; Kubernetes has probes of its own.
            "Healthcheck": {
                "Test": ["CMD", PROGRAM, "health"],
                "Interval": 30 * SECOND,
                # Above the five seconds that the question itself waits.
                "Timeout": 10 * SECOND,
                "StartPeriod": 60 * SECOND,
                "Retries": 3,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": release.timestamp, "created_by": "posthaste release",
                     "comment": ", ".join(f"{n} {v}" for n, v in packages.items())}],
    }))
    return blob(layout, MANIFEST, document({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [blob(layout, LAYER, gzipped(release, layer))],
        "annotations": labels,
    }))


def document(value):
    return json.dumps(value, indent=2).encode()


def blob(layout, media_type, data):
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}
