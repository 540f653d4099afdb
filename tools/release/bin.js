#!/usr/bin/env node
// Starts compy with what the command may do, and no more. Words in front of the command that begin with --allow- go to Deno,
// in place of what the command has of that kind: compy --allow-write=/srv/compy serve --data /srv/compy

import { spawn } from "node:child_process";
import { realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

/** How each command is started; the release writes it from the tasks of deno.json. */
const COMMANDS = {};

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);

// Deno runs this file itself (`deno run npm:compy`): what compy may do is then for its caller to say.
if (typeof Deno !== "undefined") await import("./js/main.js");
else startDeno(process.argv.slice(2));

function startDeno(words) {
  const first = words.findIndex((word) => !word.startsWith("--allow-"));
  const own = first < 0 ? words : words.slice(0, first);
  const rest = words.slice(own.length);
  const start = COMMANDS[Object.hasOwn(COMMANDS, rest[0]) ? rest[0] : ""];
  const given = (flag) => own.some((word) => word === flag || word.startsWith(`${flag}=`));

  const flags = ["-q", "--no-prompt", "--config", join(here, "deno.json"), `-P=${start.set}`, ...start.flags];
  if (start.write && !given("--allow-write")) flags.push(`--allow-write=${start.write}`);
  const libraries = folderOf(`PLATFORM_SCOPE/${process.platform}-${process.arch}`);
  if (start.ffi && libraries && !given("--allow-ffi")) flags.push(`--allow-ffi=${libraries}`);

  const deno = denoPath();
  const defaults = Object.fromEntries(start.env.map((pair) => pair.split("=", 2)));
  // deno-lint-ignore prefer-const -- a signal may come before it is there
  let child;
  // A terminal's Ctrl-C reaches both: here it must only not end this process first.
  const terminal = process.stdin.isTTY || process.stdout.isTTY;
  process.on("SIGINT", () => terminal || child?.kill("SIGINT"));
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child?.kill(signal));
  child = spawn(deno, ["run", ...flags, ...own, join(here, "js/main.js"), ...rest], {
    stdio: "inherit",
    env: { ...defaults, ...process.env, DENO_NO_PACKAGE_JSON: "1", DENO_NO_UPDATE_CHECK: "1" },
  });
  if (process.env.npm_command === "exec") followParent(child);
  child.on("error", (error) => fail(`Cannot start ${deno}: ${error.message}`));
  child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
}

/** npx ends on a signal without handing it on: the command then ends too, as if it had come here. */
function followParent(child) {
  const { ppid } = process;
  setInterval(() => process.ppid === ppid || child.kill("SIGTERM"), 500).unref();
}

/** The folder of an installed package; undefined where it is not installed. Links are followed, as Deno does for permissions. */
function folderOf(name, from = require) {
  try {
    return realpathSync(dirname(from.resolve(`${name}/package.json`)));
  } catch {
    return undefined;
  }
}

/** The binary in its platform's package: npm's `deno` has a copy only where scripts may run at the installation. */
function denoPath() {
  const libc = process.platform === "linux" ? "-glibc" : "";
  const name = `@deno/${process.platform}-${process.arch}${libc}`;
  const deno = folderOf("deno");
  const folder = deno && folderOf(name, createRequire(join(deno, "package.json")));
  if (folder) return join(folder, process.platform === "win32" ? "deno.exe" : "deno");
  fail(`Deno's binary is missing: install ${name} (npm leaves it out with --omit=optional)`);
}

function fail(message) {
  process.stderr.write(`Error: ${message}\n`);
  process.exit(1);
}
