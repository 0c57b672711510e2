"""The list of components in the binary (CycloneDX), and their licences' texts.

cargo-cyclonedx has no ready-made program in a registry, and tools that read Cargo.lock alone list
what only tests and other systems use. `cargo tree` knows the packages of this very build.
"""

import json
import re
import uuid
from pathlib import Path

from common import NOTICES, PACKAGING, ROOT, Failure, environment, run

# Of zstd-sys 2.1.2+zstd.1.5.7, as an example, the part behind the `+` is the C library's version.
CARRIED = {
    "openssl-src": "openssl",
    "rdkafka-sys": "librdkafka",
    "zstd-sys": "zstd",
}
TEXTS = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(found) if found else 0)
"""


def packages(release):
    """Those whose code is in the binary, and what cargo says of each."""
    described = json.loads(run("cargo", "metadata", "--format-version=1", "--locked",
                               "--all-features", f"--filter-platform={release.target}",
                               cwd=ROOT, stderr=None))
    by_name = {(package["name"], package["version"]): package
               for package in described["packages"]}
    tree = run("cargo", "tree", "--locked", "--package", "posthaste-cli", "--all-features",
               "--edges", "normal", "--target", release.target, "--prefix", "none",
               "--format", "{p}", cwd=ROOT, stderr=None)
    names = {tuple(re.match(r"(\S+) v(\S+)", line).groups()) for line in tree.splitlines()}
    # A build dependency whose C code ends up in the binary all the same.
    names |= {name for name in by_name if name[0] == "openssl-src"}
    if len(names) < 50:
        raise Failure(f"`cargo tree` was not understood; it named {len(names)} packages")
    return described, [by_name[name] for name in sorted(names)]


def checksums():
    lock = (ROOT / "Cargo.lock").read_text()
    found = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', lock)
    return {(name, version): checksum for name, version, checksum in found}


def component(package, sums):
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version.replace('+', '%2B')}"
    made = {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if (name, version) in sums:
        made["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    return made


def carried(package):
    """The C library in a package."""
    library = CARRIED.get(package["name"])
    if not library:
        return []
    _, _, version = package["version"].partition("+")
    version = version.removeprefix(f"{library}.")
    purl = f"pkg:generic/{library}@{version}"
    return [{"type": "library", "bom-ref": purl, "name": library, "version": version,
             "purl": purl}]


def build(release):
    described, found = packages(release)
    sums = checksums()
    refs = {package["id"]: component(package, sums)["bom-ref"] for package in found}
    nodes = {node["id"]: node for node in described["resolve"]["nodes"]}
    own = next(package for package in found if package["name"] == "posthaste-cli")
    libraries = [library for package in found for library in carried(package)]
    links = []
    for package in found:
        needs = [dep["pkg"] for dep in nodes[package["id"]]["deps"]
                 if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        refs_of = sorted(refs[need] for need in needs if need in refs)
        refs_of += [library["bom-ref"] for library in carried(package)]
        if package["name"] == "openssl-sys":
            refs_of += [refs[source["id"]] for source in found if source["name"] == "openssl-src"]
        links.append({"ref": refs[package["id"]], "dependsOn": refs_of})
    main = {**component(own, sums), "type": "application", "name": "posthaste"}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same for the same release.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, release.commit)}",
        "version": 1,
        "metadata": {"component": main, "timestamp": release.timestamp},
        "components": [component(package, sums) for package in found if package is not own]
                      + libraries,
        "dependencies": links,
    }
    path = release.out / f"posthaste-{release.version}-{release.target}.cdx.json"
    path.write_text(json.dumps(bom, indent=2) + "\n")
    python = environment("checks", PACKAGING / "requirements.txt") / "python"
    run(python, "-c", VALIDATE, path)
    release.artefact(path, "CycloneDX 1.6", f"{len(bom['components'])} components")
    (release.work / NOTICES).write_text(notices(found))


def notices(found):
    """Each text once, below the names of the packages that have it."""
    owners = {}
    for package in found:
        folder = Path(package["manifest_path"]).parent
        if folder.is_relative_to(ROOT):
            continue
        texts = [path for path in sorted(folder.rglob("*"))
                 if path.is_file() and TEXTS.match(path.name) and path.suffix not in {".rs", ".c",
                 ".h", ".py", ".pl", ".html"}]
        if not texts:
            texts = [None]
        for path in texts:
            text = path.read_text(errors="replace").strip() if path else (
                f"{package['license']}; the package has no text of it, and names as authors: "
                f"{', '.join(package['authors']) or 'nobody'}")
            name = f"{package['name']} {package['version']} ({package['license']})"
            owners.setdefault(text, []).append(name)
    parts = ["Posthaste's binary holds the packages below, each under its licence.\n"]
    for text, names in owners.items():
        names = "\n".join(dict.fromkeys(names))
        parts.append(f"{'=' * 80}\n{names}\n{'-' * 80}\n{text}\n")
    return "\n".join(parts)
