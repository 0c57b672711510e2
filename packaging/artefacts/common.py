"""What all artefacts share: the release, external programs, files with fixed metadata."""

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SUMMARY = "Transactional outbox relay: events out of your database, in order, never lost"
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]
NOTICES = "THIRD-PARTY-NOTICES"
# The names of one machine: Rust's, Debian's, OCI's, npm's.
MACHINES = {
    "x86_64": {"debian": "amd64", "oci": "amd64", "npm": "x64"},
    "aarch64": {"debian": "arm64", "oci": "arm64", "npm": "arm64"},
}


class Failure(Exception):
    """One clear error: what, where, how to mend."""


@dataclass
class Release:
    version: str
    commit: str
    # Seconds since 1970 of the commit: the time of every file in every archive.
    time: int
    machine: str
    out: Path
    work: Path
    # URL of the repository, or none while Cargo.toml names none.
    repository: str | None
    homepage: str | None
    binary: Path = None
    debug: Path = None
    # Whether it has to run on every Linux; false in tests with a binary of this machine.
    portable: bool = True
    # Highest version of a GLIBC_ symbol, such as (2, 17).
    glibc: tuple = None
    rows: list = field(default_factory=list)

    @property
    def target(self):
        return f"{self.machine}-unknown-linux-gnu"

    @property
    def compression(self):
        """A level of gzip and xz: what nobody is given need only be made fast."""
        return 6 if self.portable else 1

    def name(self, kind):
        return MACHINES[self.machine][kind]

    @property
    def timestamp(self):
        return datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def artefact(self, path, *checks):
        """Adds a row to the table of results."""
        self.rows.append((path, checks))

    def licence(self, name):
        return self.work / name if name == NOTICES else ROOT / name

    def readme(self):
        """For registries, which know no file beside it."""
        text = (ROOT / "README.md").read_text()
        if not self.repository:
            return text
        place = f"]({self.repository}/blob/v{self.version}/"
        return re.sub(r"\]\((?!https?:|#)", lambda _: place, text)


def cache():
    """The folder for downloads; `./test` computes the same one."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("POSTHASTE_TEST_CACHE") or Path(home) / "posthaste")


def run(*command, **options):
    """Runs a program and answers its standard output; its failure ends the release."""
    command = [str(word) for word in command]
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    try:
        ended = subprocess.run(command, **options)
    except FileNotFoundError:
        raise Failure(f"`{command[0]}` is not installed; install it, for example with "
                      "`./test --install`") from None
    if ended.returncode != 0:
        said = "\n".join(text for text in (ended.stdout, ended.stderr) if text)
        raise Failure(f"`{' '.join(command)}` ended with status {ended.returncode}:\n{said}")
    return ended.stdout


def environment(name, packages):
    """A Python environment with these packages in the cache; made once for a list of versions."""
    lines = packages.read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    folder = cache() / f"python-{name}"
    mark = folder / "packages"
    if not mark.exists() or mark.read_text().splitlines() != wanted:
        print(f"installing {', '.join(wanted)}", flush=True)
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(folder / "bin/python", "-m", "pip", "install", "--quiet", *wanted)
        mark.write_text("\n".join(wanted))
    return folder / "bin"


@dataclass
class Entry:
    """A file of an archive; a folder if it has no data."""

    name: str
    data: bytes | None = None
    mode: int = 0o644

    @classmethod
    def of(cls, name, path, mode=0o644):
        return cls(name, Path(path).read_bytes(), mode)


def tar(entries, time):
    """An uncompressed archive: sorted, of one time, owned by root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            info = tarfile.TarInfo(entry.name)
            info.mtime, info.mode = time, entry.mode
            if entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def gzipped(release, data):
    """Without the name and the time that gzip would note."""
    return gzip.compress(data, compresslevel=release.compression, mtime=0)


def below(folder, prefix, mode=0o644):
    """All files of a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [Entry.of(f"{prefix}/{path.relative_to(folder)}", path, mode) for path in files]


def write_sums(folder):
    """SHA256SUMS, of all files that are there."""
    sums = folder / "SHA256SUMS"
    files = sorted(path for path in folder.iterdir() if path.is_file() and path != sums)
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
                            for path in files))


def megabytes(size):
    return f"{size / 1e6:.1f} MB"
