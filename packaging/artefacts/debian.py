"""The Debian package: a staged tree, packed by dpkg-deb.

dpkg-deb is on every Debian machine. cargo-deb has no ready-made program in a registry: each machine
would have to compile it.
"""

import gzip
import os
import re
import shutil
import textwrap
import time

from common import LICENCES, NOTICES, PACKAGING, ROOT, SUMMARY, Failure, run

HERE = PACKAGING / "debian"
MAINTAINER = "Posthaste maintainers <maintainers@posthaste.invalid>"
DESCRIPTION = """
Services write events to an outbox table in the transaction that changes their data. Posthaste reads
the table of a PostgreSQL or SQLite database and publishes each event at least once, in the order of
its key, to Kafka, RabbitMQ, NATS JetStream, Redis Streams, webhooks or a file.
"""
# Most exposure that `systemd-analyze security` may find; 0 is none, 10 is all.
EXPOSURE_MAX = 2.0
CONTROL = """\
Package: posthaste
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kilobytes}
Depends: {depends}
Recommends: ca-certificates
Section: database
Priority: optional
{homepage}Description: {summary}
{description}
"""


def debian_version(version):
    """`~` sorts before the release itself; `-1` is the package's own number."""
    return version.replace("-", "~", 1) + "-1"


def units():
    """The service, and its template for further relays, which differs in names alone."""
    service = (HERE / "posthaste.service").read_text()
    template = service
    for old, new in [
        ("/etc/posthaste/posthaste.toml", "/etc/posthaste/%i.toml"),
        ("%S/posthaste", "%S/posthaste-%i"),
        ("StateDirectory=posthaste", "StateDirectory=posthaste-%i"),
        ("transactional outbox", "transactional outbox (%i)"),
    ]:
        if template.count(old) != 1:
            raise Failure(f"posthaste.service has not one `{old}` for the template to replace")
        template = template.replace(old, new)
    return {"posthaste.service": service, "posthaste@.service": template}


def build(release):
    tree = release.work / "debian"
    shutil.rmtree(tree, ignore_errors=True)
    put = Staged(tree)
    put.file("usr/bin/posthaste", release.binary.read_bytes(), 0o755)
    for name, text in units().items():
        put.file(f"lib/systemd/system/{name}", text.encode())
    # Only root reads it, for the sake of passwords; systemd hands the relay a copy.
    put.file("etc/posthaste/posthaste.toml", (HERE / "posthaste.toml").read_bytes(), 0o600)
    for page in sorted((release.work / "man").iterdir()):
        put.zipped(f"usr/share/man/man1/{page.name}", page.read_bytes())
    for name, place in [
        ("posthaste.bash", "bash-completion/completions/posthaste"),
        ("_posthaste", "zsh/vendor-completions/_posthaste"),
        ("posthaste.fish", "fish/vendor_completions.d/posthaste.fish"),
    ]:
        put.file(f"usr/share/{place}", (release.work / "completions" / name).read_bytes())
    documents = "usr/share/doc/posthaste"
    put.zipped(f"{documents}/README.md", (ROOT / "README.md").read_bytes())
    put.zipped(f"{documents}/changelog", (ROOT / "CHANGELOG.md").read_bytes())
    put.zipped(f"{documents}/changelog.Debian", changelog(release).encode())
    put.zipped(f"{documents}/{NOTICES}", (release.work / NOTICES).read_bytes())
    put.file(f"{documents}/copyright", copyright_file().encode())
    example = ROOT / "crates/posthaste-cli/posthaste.example.toml"
    put.file(f"{documents}/examples/posthaste.example.toml", example.read_bytes())
    put.file("usr/share/lintian/overrides/posthaste", (HERE / "lintian-overrides").read_bytes())
    put.control(release, depends(release))
    put.touch(release.time)

    architecture = release.name("debian")
    package = release.out / f"posthaste_{debian_version(release.version)}_{architecture}.deb"
    run("dpkg-deb", "--build", "--root-owner-group", "-Zxz", f"-z{release.compression}",
        tree, package,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(release.time)})
    run("lintian", "--fail-on", "error,warning,info,pedantic", "--allow-root", package)
    release.artefact(package, "lintian", f"exposure {exposure(tree):.1f}")


class Staged:
    """The tree of the package."""

    def __init__(self, tree):
        self.tree = tree
        self.conffiles = []

    def file(self, name, data, mode=0o644):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        if name.startswith("etc/"):
            self.conffiles.append(f"/{name}")

    def zipped(self, name, data):
        self.file(f"{name}.gz", gzip.compress(data, mtime=0))

    def control(self, release, depends):
        files = [path for path in self.tree.rglob("*") if path.is_file()]
        kilobytes = sum(-(-path.stat().st_size // 1024) for path in files)
        text = CONTROL.format(
            version=debian_version(release.version),
            architecture=release.name("debian"),
            maintainer=MAINTAINER,
            kilobytes=kilobytes,
            depends=depends,
            homepage=f"Homepage: {release.homepage}\n" if release.homepage else "",
            summary=SUMMARY[0].lower() + SUMMARY[1:],
            description=textwrap.fill(" ".join(DESCRIPTION.split()), 76, initial_indent=" ",
                                      subsequent_indent=" "),
        )
        sums = "".join(
            f"{run('md5sum', path).split()[0]}  {path.relative_to(self.tree)}\n"
            for path in sorted(files) if f"/{path.relative_to(self.tree)}" not in self.conffiles
        )
        self.file("DEBIAN/control", text.encode())
        self.file("DEBIAN/conffiles", "".join(f"{name}\n" for name in self.conffiles).encode())
        self.file("DEBIAN/md5sums", sums.encode())
        for script in ["postinst", "prerm", "postrm"]:
            self.file(f"DEBIAN/{script}", (HERE / script).read_bytes(), 0o755)

    def touch(self, time):
        for path in [self.tree, *self.tree.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (time, time))


def depends(release):
    """The packages of the libraries that the binary asks for, at the least version."""
    folder = release.work / "shlibdeps"
    (folder / "debian").mkdir(parents=True, exist_ok=True)
    (folder / "debian/control").write_text("Source: posthaste\n\nPackage: posthaste\n"
                                           "Architecture: any\n")
    found = run("dpkg-shlibdeps", "-O", "--warnings=0", "-e", release.binary, cwd=folder)
    line = re.search(r"^shlibs:Depends=(.*)$", found, re.MULTILINE)
    if not line:
        raise Failure(f"dpkg-shlibdeps named no package of the libraries:\n{found}")
    # It knows the symbols of this system's libc6 alone, and asks for all of them.
    return re.sub(r"libc6 \(>= [^)]*\)", "libc6 (>= {}.{})".format(*release.glibc), line[1])


def changelog(release):
    day = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(release.time))
    return (f"posthaste ({debian_version(release.version)}) stable; urgency=medium\n\n"
            f"  * Release {release.version}; its changes are in changelog.gz.\n\n"
            f" -- {MAINTAINER}  {day}\n")


def copyright_file():
    """Debian's form of the two licences; Apache's text is on every Debian system."""
    mit = (ROOT / LICENCES[1]).read_text()
    holders = re.search(r"^Copyright .*$", mit, re.MULTILINE)[0].removeprefix("Copyright ")
    permission = mit[mit.index("Permission is"):].strip()
    lines = [line.strip() or "." for line in permission.splitlines()]
    return ((HERE / "copyright").read_text().replace("@HOLDERS@", holders)
            + "License: Expat\n" + "".join(f" {line}\n" for line in lines)
            + "\nLicense: Apache-2.0\n"
              " The text is in /usr/share/common-licenses/Apache-2.0 on Debian systems.\n")


def exposure(tree):
    """Of the service, as systemd judges the file alone."""
    unit = tree / "lib/systemd/system/posthaste.service"
    judged = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                 f"--threshold={int(EXPOSURE_MAX * 10)}", unit)
    found = re.search(r"Overall exposure level for posthaste.service: (\d+\.\d+)", judged)
    if not found:
        raise Failure(f"systemd-analyze named no exposure:\n{judged}")
    return float(found[1])
