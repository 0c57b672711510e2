#!/usr/bin/env node
// Starts the binary of this platform's package and becomes transparent: same streams, same signals,
// same exit status.
"use strict";

const { spawn } = require("node:child_process");
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

// Asynchronous: while `spawnSync` waits, a signal to this process would reach nobody.
const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });

// A terminal signals the relay too. The relay takes two signals within 100 ms as one.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
  process.on(signal, () => child.kill(signal));
}

child.on("error", (error) => {
  console.error(`posthaste: ${platform} cannot be run: ${error.message}`);
  process.exit(1);
});

child.on("exit", (status, signal) => {
  // As a shell tells it: the signal itself would make npm print its own error.
  process.exit(signal ? 128 + constants.signals[signal] : status);
});
