#!/usr/bin/env python3
"""Checks format, lints and documentation, builds the tests, and runs them in three lanes.

`./test` calls this; its options are here. All builds come first, as cargo lets one build run at a
time. Then each lane runs one test binary after the other, and a lane that has none left takes one
of the lane that has most. The torture comes last, alone. Logs are kept in `lanes/` of the target
folder.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CARGO = os.environ.get("CARGO", "cargo")

# Binaries by lane, the longest first. All others need processors alone.
LANES = {
    "databases": [
        "posthaste-stores conformance",
        "posthaste-stores stores",
        "posthaste-cli cli",
        "posthaste-relay relay",
        "posthaste-relay conformance",
        "posthaste outbox",
    ],
    "brokers": [
        "posthaste-sinks conformance",
        "posthaste-testkit testkit",
        "posthaste-cli docs",
        "posthaste-cli packages",
    ],
    "processor": [
        "posthaste-simulation simulation",
        "posthaste-model model",
        "posthaste-engine engine",
    ],
}
# It holds relays to time limits, which a busy machine breaks: it runs when the lanes have ended.
ALONE = "posthaste-cli torture"
# Tests that wait for servers more than they compute; all others get a thread for each processor,
# or choose for themselves (suites).
THREADS = {
    "posthaste-stores stores": 4,
    "posthaste-cli torture": 3,
}
HOUSE = "posthaste-cli house"
# Files that no test reads.
UNTESTED = {"LICENSE-APACHE", "LICENSE-MIT", ".gitignore", "rustfmt.toml"}
# Tests that read a document, beside those of all documents.
READERS = {
    "docs/operating.md": ["posthaste-cli cli", "posthaste-cli packages"],
    "docs/kubernetes.md": ["posthaste-cli packages"],
    "docs/sql-contract.md": ["posthaste outbox"],
    "docs/examples/": ["posthaste outbox"],
}
# The artefacts of a release.
PACKAGED = ("packaging/", "release", ".github/workflows/release.yml")
# Sinks, and how tests of the command line that use one name it, where that is not its own name.
OTHER_NAMES = {"amqp10": "amqp10|artemis", "file": "file|delivered"}
SINKS = {
    row.stem: OTHER_NAMES.get(row.stem, row.stem)
    for row in sorted((ROOT / "crates/posthaste-sinks/src/descriptors").glob("*.rs"))
}


class Workspace:
    """Members, their targets with tests, and who depends on whom."""

    def __init__(self):
        command = [CARGO, "metadata", "--format-version=1", "--no-deps", "--offline"]
        metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
        self.parts = metadata["metadata"]["tests"]
        self.members = {package["name"]: package for package in metadata["packages"]}
        self.folders = {
            Path(package["manifest_path"]).parent.relative_to(ROOT): name
            for name, package in self.members.items()
        }
        self.binaries = {
            f"{name} {target['name']}": target
            for name, package in self.members.items()
            for target in package["targets"]
            if target["test"] and target["kind"][0] in ("lib", "bin", "test")
        }

    def of(self, member):
        return [binary for binary in self.binaries if binary.split()[0] == member]

    def dependents(self, changed, kinds):
        """Members that name one of these, in dependencies of these kinds."""
        return {
            name
            for name, package in self.members.items()
            for dependency in package["dependencies"]
            if dependency["name"] in changed and (dependency["kind"] or "normal") in kinds
        }

    def reached(self, member):
        """Members whose tests run code of this one."""
        built = {member}
        while more := self.dependents(built, ("normal", "build")) - built:
            built |= more
        return built | self.dependents(built, ("dev",))


class Selection(dict):
    """Binaries to run, each with its filters; no filter means all of its tests."""

    def add(self, binaries, filters=()):
        for binary in binaries:
            if not filters or self.get(binary) == []:
                self[binary] = []
            else:
                self[binary] = sorted({*self.get(binary, ()), *filters})


def affected(workspace, files):
    """What a change of these files can affect. A file that nobody knows can affect everything."""
    selection = Selection()
    selection.add([HOUSE])
    for name in files:
        file = Path(name)
        folder = next((f for f in workspace.folders if f in file.parents), None)
        if file.suffix == ".md" and not folder or name.startswith("docs/"):
            selection.add(["posthaste-cli docs"])
            for place, readers in READERS.items():
                selection.add(readers if name.startswith(place) else [])
        elif name.startswith(PACKAGED):
            selection.add(["posthaste-cli packages"])
        elif folder:
            affected_by_member(workspace, workspace.folders[folder], file, folder, selection)
        elif name not in UNTESTED:
            selection.add(workspace.binaries)
    return selection


def affected_by_member(workspace, member, file, folder, selection):
    place = file.relative_to(folder).parts
    if place[0] == "benches":
        return
    sink = sink_of(place) if member == "posthaste-sinks" else None
    if place[0] == "tests":
        near = [b for b in workspace.of(member) if is_below(file, workspace.binaries[b])]
        deepest = max((depth(workspace.binaries[b]) for b in near), default=0)
        near = [b for b in near if depth(workspace.binaries[b]) == deepest]
        selection.add(near or workspace.of(member), rows_of(sink))
        if member == "posthaste-stores" and "conformance" in place:
            # The stores' fixtures are used there too.
            selection.add(["posthaste-relay relay"], ["agreement::"])
    elif sink:
        selection.add(["posthaste-sinks posthaste_sinks", "posthaste-cli cli"])
        selection.add(["posthaste-cli posthaste"])
        selection.add(["posthaste-sinks conformance"], rows_of(sink))
        for suite in ("torture", "docs"):
            if tests := tests_that_name(suite, sink):
                selection.add([f"posthaste-cli {suite}"], tests)
    else:
        for reached in workspace.reached(member):
            selection.add(workspace.of(reached))


def is_below(file, target):
    return target["kind"][0] == "test" and Path(target["src_path"]).parent in (ROOT / file).parents


def depth(target):
    return len(Path(target["src_path"]).parent.parts)


def sink_of(place):
    """The sink whose file or folder this is."""
    words = {Path(part).stem for part in place}
    return next((sink for sink in SINKS if sink in words), None)


def rows_of(sink):
    return [f"{sink}::", f"{sink}-"] if sink else []


def tests_that_name(suite, sink):
    """Tests of the command line's suite whose function names the sink."""
    folder = ROOT / "crates/posthaste-cli/tests" / suite
    found = set()
    for file in folder.rglob("*.rs"):
        functions = re.split(r"\n(?:#\[(?:tokio::)?test.*\n)", file.read_text())
        for function in functions[1:]:
            name = re.search(r"fn (\w+)\(", function)
            body = function.split("\n}\n")[0]
            if name and re.search(SINKS[sink], body, re.IGNORECASE):
                found.add(name[1])
    return sorted(found)


def changed_files(base):
    """Files that differ from the base, uncommitted and new ones too."""
    git = lambda *args: subprocess.check_output(["git", *args], cwd=ROOT, text=True).split("\n")
    start = git("merge-base", base, "HEAD")[0]
    new = git("ls-files", "--others", "--exclude-standard")
    return sorted(filter(None, {*git("diff", "--name-only", "--no-renames", start), *new}))


class Test:
    """A test binary, or the tests in documentation comments, with its log."""

    def __init__(self, name, command, folder, environment={}, filters=()):
        self.name, self.command, self.folder = name, command, folder
        self.environment, self.filters = environment, filters
        self.log = self.status = None
        self.seconds = 0.0

    def run(self, lane, processes):
        self.log = TARGET / "lanes" / lane / (self.name.replace(" ", ".") + ".log")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(self.log, "w") as log:
            log.write(f"$ {shlex.join(map(str, self.command))}\n")
            log.flush()
            self.status = processes.run(
                self.command, cwd=self.folder, env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )
        self.seconds = time.monotonic() - began

    def text(self):
        return self.log.read_text(errors="replace")

    def results(self):
        return re.findall(r"^test result: .*", self.text(), re.MULTILINE)

    def rows(self):
        """What suites say of their rows' time budgets."""
        return re.findall(r"^row .*", self.text(), re.MULTILINE)

    def passed(self):
        return sum(int(n) for result in self.results() for n in re.findall(r"(\d+) passed", result))

    def is_good(self):
        ran = self.passed() or not self.filters
        return self.status == 0 and bool(self.results()) and bool(ran)

    def failures(self):
        return re.findall(r"^test (.*) \.\.\. FAILED", self.text(), re.MULTILINE)

    def story(self):
        """All that the failures wrote; the end of the log, if the binary did not come to that."""
        _, found, story = self.text().partition("\nfailures:\n")
        return story if found else "\n".join(self.text().split("\n")[-200:])


class Processes:
    """Children, all of which end when this program is told to."""

    def __init__(self):
        self.running, self.lock, self.stopping = set(), threading.Lock(), False

    def run(self, command, **options):
        with self.lock:
            if self.stopping:
                return None
            child = subprocess.Popen(command, **options)
            self.running.add(child)
        try:
            return child.wait()
        finally:
            with self.lock:
                self.running.discard(child)

    def stop(self):
        """Kills them. The test kit's watchers then stop the servers that a killed test had."""
        with self.lock:
            self.stopping = True
            for child in self.running:
                child.kill()


def heading(text):
    print(f"\n== {text}  (at {time.monotonic() - STARTED:.0f}s)", flush=True)


def step(processes, title, command, **environment):
    heading(title)
    began = time.monotonic()
    if processes.run(command, cwd=ROOT, env={**os.environ, **environment}) != 0:
        sys.exit(f"\n{title}: failed.")
    print(f"-- {time.monotonic() - began:.0f}s", flush=True)


def cargo_test(members):
    return [CARGO, "test", "--all-features", *(word for m in members for word in ("-p", m))]


def built(processes, workspace, selection):
    """Builds what is selected; answers the tests to run."""
    tests = []
    for part, members in workspace.parts.items():
        wanted = [binary for binary in selection if binary.split()[0] in members]
        if not wanted:
            continue
        # All members of the part, so that features are the same whatever is selected.
        command = [*cargo_test(members), "--no-run", "--message-format=json-render-diagnostics"]
        kinds = {workspace.binaries[binary]["kind"][0] for binary in wanted}
        command += ["--lib"] * ("lib" in kinds) + ["--bins"] * ("bin" in kinds)
        for target in {b.split()[1] for b in wanted if workspace.binaries[b]["kind"][0] == "test"}:
            command += ["--test", target]
        messages = TARGET / f"lanes/built-{part}.json"
        messages.parent.mkdir(parents=True, exist_ok=True)
        heading(f"Build of the tests: {part}")
        with open(messages, "w") as out:
            if processes.run(command, cwd=ROOT, stdout=out) != 0:
                sys.exit(f"\nThe tests were not built: {shlex.join(command)}")
        artifacts = [json.loads(line) for line in open(messages)]
        artifacts = [a for a in artifacts if a.get("executable")]
        programs = {
            f"CARGO_BIN_EXE_{a['target']['name']}": a["executable"]
            for a in artifacts
            if a["target"]["kind"] == ["bin"] and not a["profile"]["test"]
        }
        found = {}
        for artifact in (a for a in artifacts if a["profile"]["test"]):
            folder = Path(artifact["manifest_path"]).parent
            member = workspace.folders[folder.relative_to(ROOT)]
            name = f"{member} {artifact['target']['name']}"
            if name in wanted:
                environment = {
                    **programs,
                    "CARGO": CARGO,
                    "CARGO_MANIFEST_DIR": str(folder),
                    "CARGO_MANIFEST_PATH": artifact["manifest_path"],
                    "CARGO_PKG_NAME": member,
                    "CARGO_PKG_VERSION": workspace.members[member]["version"],
                }
                filters = selection[name]
                arguments = [artifact["executable"], *filters]
                if name in THREADS:
                    arguments.append(f"--test-threads={THREADS[name]}")
                found[name] = Test(name, arguments, folder, environment, filters)
        if missing := set(wanted) - set(found):
            sys.exit(f"\nNot built: {', '.join(sorted(missing))}")
        tests += found.values()
        libraries = [m for m in members if f"{m} {m.replace('-', '_')}" in wanted]
        if libraries:
            name = f"{part} documentation"
            tests.append(Test(name, [*cargo_test(members), "--doc"], ROOT))
    return tests


def in_lanes(tests):
    """The tests by lane, in the order of the table."""
    place = {name: (lane, at) for lane, names in LANES.items() for at, name in enumerate(names)}
    lanes = {lane: [] for lane in LANES}
    for test in sorted(tests, key=lambda test: place.get(test.name, ("", 99))[1]):
        lanes[place.get(test.name, ("processor", 99))[0]].append(test)
    return lanes


def run(processes, lanes):
    lock = threading.Lock()

    def work(lane):
        while True:
            with lock:
                fullest = max(lanes.values(), key=len)
                if processes.stopping or not fullest:
                    return
                test = (lanes[lane] or fullest).pop(0)
            test.run(lane, processes)
            if not processes.stopping:
                verdict = "ok" if test.is_good() else "FAILED"
                counted = f"{test.passed()} passed"
                with lock:
                    print(f"{lane:10} {test.name:38} {test.seconds:6.1f}s  {verdict}, {counted}",
                          flush=True)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def report(tests):
    failed = [test for test in tests if not test.is_good()]
    for test in failed:
        heading(f"{test.name} failed: status {test.status}, {test.passed()} passed; {test.log}")
        print(test.story())
    heading("Results")
    for test in sorted(tests, key=lambda test: test.name):
        for result in test.results() or ["no result"]:
            print(f"{result} ({test.name})")
        for row in test.rows():
            print(f"    {row}")
    if failed:
        print("\nFailed:")
        for test in failed:
            for failure in test.failures() or [f"(status {test.status})"]:
                print(f"    {test.name} {failure}")
    ran = any(test.passed() for test in tests)
    if not ran:
        print("\nNo test ran.")
    return not failed and ran


def told(workspace, selection):
    for binary in sorted(workspace.binaries):
        if binary not in selection:
            print(f"left out: {binary}")
        elif selection[binary]:
            print(f"in part:  {binary}: {' '.join(selection[binary])}")


def main():
    parser = argparse.ArgumentParser(prog="./test", description=__doc__.split("\n")[0])
    parser.add_argument("--changed", nargs="?", const="main", metavar="BASE",
                        help="only what the change since BASE can affect (default: main)")
    parser.add_argument("--only", action="append", metavar="BINARY[=FILTER]",
                        help="only this binary, as a result line names it; no lints")
    parser.add_argument("--affected", action="store_true",
                        help="print what the files on standard input affect, line by line")
    options = parser.parse_args()
    workspace = Workspace()
    if options.affected:
        for line in sys.stdin:
            print(json.dumps(affected(workspace, line.split())), flush=True)
        return True
    selection = Selection()
    if options.only:
        for only in options.only:
            name, _, only_filter = only.partition("=")
            if name not in workspace.binaries:
                sys.exit(f"No binary {name}. There are: {', '.join(sorted(workspace.binaries))}")
            selection.add([name], [only_filter] if only_filter else [])
    elif options.changed:
        selection = affected(workspace, changed_files(options.changed))
        heading(f"What the change since {options.changed} can affect")
        told(workspace, selection)
    else:
        selection.add(workspace.binaries)

    processes = Processes()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not options.only:
            checks(processes)
        tests = built(processes, workspace, selection)
        heading("Tests")
        run(processes, in_lanes([test for test in tests if test.name != ALONE]))
        run(processes, {"alone": [test for test in tests if test.name == ALONE]})
    finally:
        processes.stop()
    good = report(tests)
    seconds = time.monotonic() - STARTED
    print(f"\nAll checks passed in {seconds:.0f}s." if good else "\nTests failed.")
    return good


def checks(processes):
    step(processes, "Format", [CARGO, "fmt", "--all", "--check"])
    workspace = ["--workspace", "--all-features"]
    step(processes, "Lints",
         [CARGO, "clippy", *workspace, "--all-targets", "--", "-D", "warnings"])
    step(processes, "Documentation", [CARGO, "doc", *workspace, "--no-deps"],
         RUSTDOCFLAGS="-D warnings")


STARTED = time.monotonic()
if __name__ == "__main__":
    try:
        sys.exit(0 if main() else 1)
    except KeyboardInterrupt:
        sys.exit(130)
