"""The wheel for pip: the binary as a script, and no Python.

maturin packs only what it builds itself; this one takes the binary that all artefacts have.
"""

import base64
import hashlib
import io
import re
import time
import zipfile

from common import LICENCES, NOTICES, PACKAGING, SUMMARY, Entry, Failure, environment, run

# On PyPI, `posthaste` and `posthaste-cli` belong to others.
NAME = "posthaste-relay"
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: {summary}
License-Expression: MIT OR Apache-2.0
{licences}Keywords: outbox,transactional,events,kafka,postgres
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Topic :: Database
{urls}Requires-Python: >=3
Description-Content-Type: text/markdown

{readme}"""


def python_version(version):
    """Cargo's form of a pre-release in Python's: 1.0.0-rc.1 is 1.0.0rc1."""
    return re.sub(r"-(alpha|beta|rc)\.?", lambda found: {"alpha": "a", "beta": "b"}.get(
        found[1], found[1]), version)


def build(release):
    version = python_version(release.version)
    stem = f"{NAME.replace('-', '_')}-{version}"
    minor = release.glibc[1]
    platform = f"manylinux2014_{release.machine}"
    if release.glibc > (2, 17):
        platform = f"manylinux_2_{minor}_{release.machine}"
    tag = f"py3-none-{platform}"
    texts = [*LICENCES, NOTICES]
    url = f"Project-URL: Source, {release.repository}\n" if release.repository else ""
    metadata = METADATA.format(
        name=NAME, version=version, summary=SUMMARY, readme=release.readme(), urls=url,
        licences="".join(f"License-File: {name}\n" for name in texts),
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: posthaste\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entries = [
        Entry.of(f"{stem}.data/scripts/posthaste", release.binary, 0o755),
        Entry(f"{stem}.dist-info/METADATA", metadata.encode()),
        Entry(f"{stem}.dist-info/WHEEL", wheel.encode()),
        *(Entry.of(f"{stem}.dist-info/licenses/{name}", release.licence(name)) for name in texts),
    ]
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{entry.name},sha256={digest(entry.data)},{len(entry.data)}" for entry in entries]
    entries.append(Entry(record, "\n".join([*lines, f"{record},,", ""]).encode()))

    package = release.out / f"{stem}-{tag}.whl"
    package.write_bytes(zipped(release, entries))
    check(release, package, platform)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def zipped(release, entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.name, time.gmtime(release.time)[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, or the mode does not count.
            info.external_attr = (0o100000 | entry.mode) << 16
            archive.writestr(info, entry.data, compresslevel=release.compression)
    return buffer.getvalue()


def check(release, package, platform):
    tools = environment("checks", PACKAGING / "requirements.txt")
    run(tools / "twine", "check", "--strict", package)
    checks = ["twine"]
    if release.portable:
        judged = run(tools / "auditwheel", "show", package)
        wanted = f"manylinux_2_17_{release.machine}"
        if f'"{wanted}"' not in judged.replace("\n", ""):
            raise Failure(f"auditwheel does not find {package.name} to be {platform}:\n{judged}")
        checks.append("auditwheel")
    release.artefact(package, *checks)
