"""The portable binary: its build, its debug symbols, and what has to be true of it."""

import os
import re
import subprocess
import time
from pathlib import Path

from common import PACKAGING, ROOT, Failure, cache, environment, megabytes, run

# CentOS 7's, and the floor that Rust itself keeps: every distribution that is still served has it.
GLIBC = (2, 17)
BYTES_MAX = 25_000_000
START_SECONDS_MAX = 0.050
# The C library's own, which every system has; anything else would have to be installed.
LIBRARIES = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libutil|libresolv|ld-linux[\w-]*)\.so\.\d")
# jemalloc refuses to start where pages are larger than it was built for: some kernels of ARM have
# pages of 64 KiB, as a power of two.
LARGEST_PAGE = "16"
# zig itself and not cargo-zigbuild's wrapper of it: that one starts a Python for each of a thousand
# files. Crates name the target in Rust's words, which zig does not know. OpenSSL is told folders of
# this machine, where nothing is found on another one; most of it is never called, and goes where
# each function has a section of its own, and so with librdkafka. (Not where `-c` is missing: what
# nobody calls goes before configure scripts see that it is missing.) OpenSSL's scripts ask for the
# compiler's version: an old one gets no code for AVX-512, 0.7 MB for more gigabytes a second than
# any broker takes. Nothing unwinds through C.
COMPILER = """\
#!/bin/sh
if test "$*" = -v; then
  echo clang version 6.0.0
  exit
fi
openssl=
for word; do
  shift
  case "$word" in
    --target=*) continue ;;
    -DENGINESDIR=* | -DMODULESDIR=*) word="${{word%%=*}}=\\"/nonexistent\\"" ;;
    -DOPENSSL_BUILDING_OPENSSL) openssl="-Os -ffunction-sections -fdata-sections" ;;
  esac
  set -- "$@" "$word"
done
case "$PWD $* " in
  */rdkafka-sys-*" -c "*) set -- "$@" -Os -ffunction-sections -fdata-sections ;;
  */zstd-sys-*) set -- "$@" -Os ;;
esac
exec {zig} cc -target {target} -fno-sanitize=undefined -g0 {maps} "$@" $openssl \\
  -fno-asynchronous-unwind-tables -fno-unwind-tables
"""


def build(release):
    """The `dist` profile, with zig as C compiler and linker: it knows the symbols of each GLIBC."""
    tools = environment("build", PACKAGING / "build-requirements.txt")
    target = release.target
    zig = run(tools / "python", "-c", "import os, ziglang; "
              "print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))").strip()
    target_folder = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    # Paths of this machine would differ in the binary of another one. The last that fits counts.
    places = {cargo_home(): "/cargo", ROOT: "/posthaste", target_folder: "/target"}
    remapped = [f"--remap-path-prefix={place}={name}" for place, name in places.items()]
    # OpenSSL tells how it was compiled: a bare name, and no option that names a folder.
    compiler = Path(release.work) / "compiler/zig-cc"
    compiler.parent.mkdir(parents=True, exist_ok=True)
    version = ".".join(map(str, GLIBC))
    maps = " ".join(f"-ffile-prefix-map={place}={name}" for place, name in places.items())
    compiler.write_text(COMPILER.format(
        zig=zig, target=f"{release.machine}-linux-gnu.{version}", maps=maps))
    compiler.chmod(0o755)
    settings = {
        **os.environ,
        "PATH": f"{compiler.parent}:{tools}:{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": str(release.time),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(remapped),
        # Crates look for the first, librdkafka's configure script for the others.
        f"CC_{target.replace('-', '_')}": compiler.name,
        "CC": compiler.name,
        # It makes a shared library too, with a list of symbols of which one is missing.
        "LDFLAGS": "-Wl,--undefined-version",
        "AR": "ar",
        "RANLIB": "ranlib",
        # OpenSSL is compiled and carried; nothing else of the system is to be found either.
        "OPENSSL_NO_VENDOR": "0",
        "PKG_CONFIG_LIBDIR": "/nonexistent",
        "ZIG_GLOBAL_CACHE_DIR": str(cache() / "zig"),
        "POSTHASTE_COMMIT": release.commit,
        **({"JEMALLOC_SYS_WITH_LG_PAGE": LARGEST_PAGE} if release.machine == "aarch64" else {}),
    }
    run("cargo", "zigbuild", "--locked", "--profile", "dist", "--package", "posthaste-cli",
        "--bin", "posthaste", "--all-features",
        "--target", f"{target}.{version}",
        cwd=ROOT, env=settings, stdout=None, stderr=None)
    return ROOT / target_folder / target / "dist/posthaste"


def cargo_home():
    return os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))


def split(release, built):
    """Takes the debug symbols out; a debugger finds them by the build's id or the file's name."""
    binary = release.work / "posthaste"
    debug = release.work / "posthaste.debug"
    run("objcopy", "--only-keep-debug", built, debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", built, binary)
    binary.chmod(0o755)
    return binary, debug


def glibc(binary):
    """The newest GLIBC whose symbols the binary asks for."""
    symbols = run("objdump", "-T", binary)
    versions = {tuple(map(int, found.split("."))) for found in
                re.findall(r"GLIBC_(\d+\.\d+(?:\.\d+)?)", symbols)}
    if not versions:
        raise Failure(f"{binary} asks for no GLIBC symbol; it is no dynamic Linux program")
    return max(versions)[:2]


def needed(binary):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", binary))


def start_seconds(binary):
    """The best of ten: the others say how busy the machine is."""
    times = []
    for _ in range(10):
        began = time.monotonic()
        subprocess.run([binary, "--version"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - began)
    return min(times)


def problems(release):
    """What makes a binary unfit for machines other than this one."""
    found = []
    if release.glibc > GLIBC:
        found.append(f"it needs GLIBC {'.'.join(map(str, release.glibc))}; "
                     f"at most {'.'.join(map(str, GLIBC))} is everywhere")
    foreign = [name for name in needed(release.binary) if not LIBRARIES.fullmatch(name)]
    if foreign:
        found.append(f"it needs {', '.join(foreign)}")
    size = release.binary.stat().st_size
    if size > BYTES_MAX:
        found.append(f"it has {megabytes(size)}, more than {megabytes(BYTES_MAX)}")
    seconds = start_seconds(release.binary)
    if seconds > START_SECONDS_MAX:
        found.append(f"it starts in {seconds * 1e3:.0f} ms, more than "
                     f"{START_SECONDS_MAX * 1e3:.0f} ms")
    if "jemalloc" not in run(release.binary, "--version", stderr=subprocess.STDOUT,
                             env={**os.environ, "_RJEM_MALLOC_CONF": "stats_print:true"}):
        found.append("its memory is the C library's, which grows from outage to outage")
    data = release.binary.read_bytes()
    for place in [str(ROOT), cargo_home(), str(cache())]:
        if place.encode() in data:
            found.append(f"it holds the path {place} of this machine")
    return found, [
        f"GLIBC <= {'.'.join(map(str, release.glibc))}",
        f"starts in {seconds * 1e3:.0f} ms",
        f"needs {len(needed(release.binary))} libraries",
    ]
