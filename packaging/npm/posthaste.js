#!/usr/bin/env node
// Starts the binary of this platform's package: in the place of this process where Node can do that,
// else below it, with the same streams, signals and exit status.
"use strict";

const { spawn } = require("node:child_process");
const { accessSync, constants: files, readFileSync } = require("node:fs");
const { constants } = require("node:os");

const platform = `@posthaste/${process.platform}-${process.arch}`;

function binary() {
  try {
    return require.resolve(`${platform}/posthaste`);
  } catch {
    console.error(
      `posthaste: the package ${platform} is not installed. It comes with posthaste on Linux ` +
        "(x64, arm64, with glibc), unless npm was told to omit optional packages: run " +
        "`npm install --include=optional posthaste`. On other systems build it with " +
        "`cargo install posthaste-cli`.",
    );
    process.exit(1);
  }
}

function fail(error) {
  console.error(`posthaste: ${platform} cannot be run: ${error.message}`);
  process.exit(1);
}

// Node 22.15 or later: no launcher is left that could be late with a signal, or be killed alone.
function become(program, args) {
  try {
    accessSync(program, files.X_OK);
  } catch (error) {
    fail(error); // `execve` would abort.
  }
  process.execve(program, [program, ...args]);
}

// Ctrl-C is for all processes of the terminal's foreground group, so the relay has it already. A
// second one, passed on late by a busy machine, would cut its planned stop.
function isInForeground() {
  try {
    // Behind the program's name: state, parent, group, session, terminal, its foreground group.
    const [, , group, , , foreground] = readFileSync("/proc/self/stat", "latin1")
      .replace(/^.*\) /s, "")
      .split(" ");
    return group === foreground;
  } catch {
    return false; // Without /proc a signal too many is better than one too few.
  }
}

function start(program, args) {
  // Asynchronous: while `spawnSync` waits, a signal to this process would reach nobody.
  const child = spawn(program, args, { stdio: "inherit" });
  for (const signal of ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
    process.on(signal, () => child.kill(signal));
  }
  process.on("SIGINT", () => {
    if (!isInForeground()) {
      child.kill("SIGINT");
    }
  });
  child.on("error", fail);
  child.on("exit", (status, signal) => {
    // As a shell tells it: the signal itself would make npm print its own error.
    process.exit(signal ? 128 + constants.signals[signal] : status);
  });
}

(process.execve ? become : start)(binary(), process.argv.slice(2));
