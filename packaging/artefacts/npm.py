"""The packages for npm: a launcher, and the binary in a package for each platform.

npm installs the one package whose `os`, `cpu` and `libc` fit. Nothing runs at the installation, and
nothing is downloaded besides.
"""

import json

from common import LICENCES, MACHINES, NOTICES, PACKAGING, SUMMARY, Entry, gzipped, tar

HERE = PACKAGING / "npm"


def platform_name(machine):
    return f"@posthaste/linux-{MACHINES[machine]['npm']}"


def build(release):
    common = {
        "version": release.version,
        "license": "MIT OR Apache-2.0",
        **({"repository": {"type": "git", "url": f"git+{release.repository}.git"}}
           if release.repository else {}),
    }
    main = {
        "name": "posthaste",
        **common,
        "description": SUMMARY,
        "keywords": ["outbox", "transactional", "events", "kafka", "postgres"],
        "bin": {"posthaste": "posthaste.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {platform_name(machine): release.version for machine in MACHINES},
    }
    # The same for every platform: the release keeps one of them.
    pack(release, "posthaste", main, [
        Entry.of("posthaste.js", HERE / "posthaste.js", 0o755),
        Entry("README.md", release.readme().encode()),
    ])
    name = platform_name(release.machine)
    platform = {
        "name": name,
        **common,
        "description": f"The binary of posthaste for Linux on {release.machine}",
        "os": ["linux"],
        "cpu": [release.name("npm")],
        "libc": ["glibc"],
        "files": ["posthaste"],
    }
    pack(release, f"posthaste-linux-{release.name('npm')}", platform, [
        Entry.of("posthaste", release.binary, 0o755),
        Entry("README.md",
              f"# {name}\n\n{platform['description']}. Install `posthaste`.\n".encode()),
        Entry.of(NOTICES, release.licence(NOTICES)),
    ])


def pack(release, stem, manifest, entries):
    entries += [Entry.of(name, release.licence(name)) for name in LICENCES]
    entries.append(Entry("package.json", (json.dumps(manifest, indent=2) + "\n").encode()))
    for entry in entries:
        entry.name = f"package/{entry.name}"
    package = release.out / f"{stem}-{release.version}.tgz"
    package.write_bytes(gzipped(release, tar(entries, release.time)))
    release.artefact(package, "no install script")
