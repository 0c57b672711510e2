"""The archive of the binary for every Linux, and that of its debug symbols."""

from common import LICENCES, NOTICES, ROOT, Entry, below, gzipped, tar

import debian


def build(release):
    # cargo-binstall looks for these names: see `package.metadata.binstall` of posthaste-cli.
    stem = f"posthaste-{release.version}-{release.target}"
    entries = [
        Entry.of("posthaste", release.binary, 0o755),
        *(Entry.of(name, ROOT / name) for name in ["README.md", "CHANGELOG.md"]),
        *(Entry.of(name, release.licence(name)) for name in [*LICENCES, NOTICES]),
        *below(release.work / "man", "man"),
        *below(release.work / "completions", "completions"),
        *(Entry(f"systemd/{name}", text.encode()) for name, text in debian.units().items()),
    ]
    for entry in entries:
        entry.name = f"{stem}/{entry.name}"
    package = release.out / f"{stem}.tar.gz"
    package.write_bytes(gzipped(release, tar(entries, release.time)))
    release.artefact(package, "man pages", "completions")

    symbols = release.out / f"{stem}-debug.tar.gz"
    debug = [Entry.of(f"{stem}-debug/posthaste.debug", release.debug)]
    symbols.write_bytes(gzipped(release, tar(debug, release.time)))
    release.artefact(symbols, "debug symbols")
