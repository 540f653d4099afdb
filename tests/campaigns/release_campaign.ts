/**
 * Tests the release in dist/ like a user without Rust (`deno task release:test`): installed by npm, run by Deno from a
 * registry, and unpacked without a network. Prints one line per step with the time to the first text. Needs npm and its
 * configured registry.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { fromFileUrl, join } from "@std/path";
import { DENO_VERSION, NAME, platformPackage, VERSION } from "../../package.ts";
import { thisPlatform } from "../../ffi/find.ts";
import { campaignLine } from "../../testing/campaign.ts";

const root = fromFileUrl(new URL("../..", import.meta.url));
const DIST = join(root, "dist");
/** Maximum milliseconds from the command's start to the first text of an answer. */
const MOST_MS = 10_000;
const VERDACCIO = "verdaccio@6.8.0";
const TYPESCRIPT = "typescript@5.9.3";
const ASK = ["generate", "--chat", "Who are you?", "--temperature", "0"];
const ANSWER = /^My name is compy\b/;

campaignLine({
  task: "release:test",
  does: "Install and run what `deno task release` left in dist/, as somebody meets it who has no Rust.",
  options: {},
});
const work = await Deno.makeTempDir({ prefix: "compy-release-" });
const { os, cpu } = thisPlatform();
const platform = platformPackage(os, cpu);
const denoPlatform = `@deno/${os}-${cpu}${os === "linux" ? "-glibc" : ""}`;
const MAIN_TAR = join(DIST, `${NAME}-${VERSION}.tgz`);
const PLATFORM_TAR = join(DIST, `${platform.slice(1).replace("/", "-")}-${VERSION}.tgz`);
const FOLDER = `${NAME}-${VERSION}-${os}-${cpu}`;

/** Variables for this machine's network access. npm has its own settings, but other Node programs read only these. */
const NETWORK = ["NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/** An environment without cargo, caches or settings of this machine's user, except network settings. */
const env: Record<string, string> = {
  ...Object.fromEntries(NETWORK.flatMap((name) => (Deno.env.has(name) ? [[name, Deno.env.get(name)!]] : []))),
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: join(work, "home"),
  NO_COLOR: "1",
  npm_config_registry: (await output("npm", ["config", "get", "registry"], {}, Deno.env.toObject())).trim(),
  npm_config_update_notifier: "false",
  npm_config_fund: "false",
};

interface Options {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
}

async function output(command: string, args: string[], options: Options = {}, all = env): Promise<string> {
  const child = new Deno.Command(command, {
    args,
    cwd: options.cwd ?? work,
    env: { ...all, ...options.env },
    clearEnv: true,
    stdin: "null",
  });
  const { code, stdout, stderr } = await child.output();
  const decoder = new TextDecoder();
  assertEquals(code, 0, `${command} ${args.join(" ")}\n${decoder.decode(stdout)}\n${decoder.decode(stderr)}`);
  return decoder.decode(stdout);
}

/** Runs a command that answers; returns milliseconds to its first text. */
async function firstText(command: string, args: string[], options: Options = {}): Promise<number> {
  const started = performance.now();
  const child = start(command, args, options);
  let first = 0;
  let text = "";
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    if (text === "") first = performance.now() - started;
    text += part;
  }
  const { code } = await child.status;
  const said = await new Response(child.stderr).text();
  assertEquals(code, 0, `${command} ${args.join(" ")}\n${text}\n${said}`);
  assertMatch(text, ANSWER, said);
  return first;
}

function start(command: string, args: string[], options: Options = {}): Deno.ChildProcess {
  return new Deno.Command(command, {
    args,
    cwd: options.cwd ?? work,
    env: { ...env, ...options.env },
    clearEnv: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Starts a server, requests its endpoints, and stops it with a signal. Asserts exit code 0. */
async function serves(command: string, args: string[], options: Options = {}): Promise<void> {
  const child = start(command, [...args, "serve", "--port", "0"], options);
  const said = new Response(child.stderr).text();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  while (!/listening on (\S+)\n/.test(printed)) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The server ended: ${await said}`);
    printed += value;
  }
  const [, base] = /listening on (\S+)\n/.exec(printed)!;
  for (const path of ["/health", "/", "/page/app.js", "/v1/models"]) {
    const response = await fetch(base + path);
    await response.body?.cancel();
    assertEquals(response.status, 200, path);
  }
  const response = await fetch(`${base}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "demo",
      temperature: 0,
      messages: [{ role: "user", content: "Who are you?" }],
      response_format: { type: "json_schema", json_schema: { name: "a", schema: { enum: ["x", "y"] } } },
    }),
  });
  const { choices } = await response.json();
  assert(["x", "y"].includes(JSON.parse(choices[0].message.content)), JSON.stringify(choices));
  child.kill("SIGTERM");
  assertEquals((await child.status).code, 0, await said);
  await reader.cancel();
}

async function step(name: string, run: () => Promise<number | string | void>): Promise<void> {
  const started = performance.now();
  const result = await run();
  const detail = typeof result === "number"
    ? `first text after ${(result / 1000).toFixed(1)} s`
    : result ?? `${((performance.now() - started) / 1000).toFixed(1)} s`;
  say(`ok  ${name}: ${detail}`);
  if (typeof result === "number") {
    assert(result <= MOST_MS, `${name}: the first text must come within ${MOST_MS} ms (got ${result})`);
  }
}

function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
}

/** Installs the npm packages into a new project. */
async function npm(): Promise<void> {
  const project = join(work, "project");
  await Deno.mkdir(project);
  await Deno.writeTextFile(join(project, "package.json"), '{"private":true,"type":"module"}');
  const here = { cwd: project };
  await step("npm install of the tarballs", async () => {
    await output("npm", ["install", "--silent", MAIN_TAR, PLATFORM_TAR], here);
  });
  await step("npx, the first time", () => firstText("npx", [NAME, ...ASK], here));
  await step("npx, again", () => firstText("npx", [NAME, ...ASK], here));
  const bin = join(project, `node_modules/.bin/${NAME}`);
  await step("a server by npm's command, a schema, SIGTERM", () => serves(bin, [], here));
  await step("the same supervised", () => serves("sh", ["-c", `exec ${bin} "$@" --supervise`, "sh"], here));
  await step("a batch", async () => {
    const line = {
      custom_id: "a",
      method: "POST",
      url: "/v1/chat/completions",
      body: { model: "demo", messages: [{ role: "user", content: "Who are you?" }] },
    };
    await Deno.writeTextFile(join(project, "in.jsonl"), JSON.stringify(line) + "\n");
    await output(bin, ["batch", "run", "in.jsonl", "--out", "out.jsonl"], here);
    assertMatch(await Deno.readTextFile(join(project, "out.jsonl")), /compy/);
  });
  await step("no command may do more than its task: FFI elsewhere is refused", async () => {
    const child = start(bin, [...ASK, "--library", work], here);
    assertEquals((await child.status).code, 1);
    await child.stdout.cancel();
    assertMatch(await new Response(child.stderr).text(), /not there/);
  });
  await step("the library's types", async () => {
    await Deno.writeTextFile(join(project, "use.ts"), LIBRARY_PROGRAM);
    const compilerOptions = { noEmit: true, strict: true, target: "esnext", module: "nodenext", types: [] };
    const config = JSON.stringify({ compilerOptions, files: ["use.ts"] });
    await Deno.writeTextFile(join(project, "tsconfig.json"), config);
    await output("npx", ["--yes", `--package=${TYPESCRIPT}`, "tsc"], here);
  });
  await step("the library's module in Node", async () => {
    const code = `import("${NAME}").then((m) => console.log(Object.keys(m).sort().join()))`;
    assertMatch(await output("node", ["-e", code], here), /\bloadModel\b/);
  });
}

const LIBRARY_PROGRAM = `
import { createServer, loadModel, type ChatPart } from "${NAME}";
const model = await loadModel();
const parts: ChatPart[] = [];
for await (const part of model.chat("Who are you?", { maxTokens: 40, temperature: 0 })) parts.push(part);
console.log(parts.map(({ text }) => text ?? "").join(""));
export const fetch: unknown = createServer;
await model[Symbol.asyncDispose]();
`;

/**
 * Runs the package with Deno, from a local registry that has the tarballs and fetches other packages from the real
 * registry.
 */
async function fromRegistry(project: string): Promise<void> {
  const deno = join(project, "node_modules", denoPlatform, "deno");
  const others = await otherPlatforms(project);
  const folder = join(work, "registry");
  await Deno.mkdir(folder);
  // A dependency needs a tag of node-fetch that not every registry has.
  const overrides = { "node-fetch": "2.7.0" };
  await Deno.writeTextFile(join(folder, "package.json"), JSON.stringify({ private: true, overrides }));
  await output("npm", ["install", "--no-audit", VERDACCIO], { cwd: folder });
  const port = 30_000 + Math.floor(Math.random() * 20_000);
  const registry = `http://127.0.0.1:${port}/`;
  await Deno.writeTextFile(
    join(folder, "config.yaml"),
    [
      `storage: ${folder}/storage`,
      "max_body_size: 200mb",
      // Deno's binary is 40 MB. By default a few slow downloads would disable the uplink for five minutes.
      `uplinks: { other: { url: "${env.npm_config_registry}", timeout: 2m, max_fails: 100, fail_timeout: 1s } }`,
      "packages:",
      ...[`@${NAME}/*`, NAME, ...others.map(([name]) => name)].map((name) =>
        `  "${name}": { access: $all, publish: $all }`
      ),
      `  "**": { access: $all, proxy: other }`,
      "log: { type: stdout, level: error }",
    ].join("\n"),
  );
  const verdaccio = join(folder, "node_modules/.bin/verdaccio");
  const server = start(verdaccio, ["--config", join(folder, "config.yaml"), "--listen", `127.0.0.1:${port}`]);
  // The registry ends if its output is not read.
  const said = [server.stdout, server.stderr].map((stream) => stream.pipeTo(new WritableStream()));
  try {
    for (let tries = 0; !(await fetch(registry).then((r) => r.ok, () => false)); tries++) {
      assert(tries < 300, "The registry must answer within a minute");
      await delay(200);
    }
    const token = `--//127.0.0.1:${port}/:_authToken=none`;
    for (const packed of [PLATFORM_TAR, ...await standIns(others), MAIN_TAR]) {
      await output("npm", ["publish", packed, "--registry", registry, token, "--silent"]);
    }
    const cache = join(work, "deno-cache");
    const options = {
      env: { npm_config_registry: registry, NPM_CONFIG_REGISTRY: registry, DENO_DIR: cache },
    };
    // By default Deno refuses packages that were just published.
    const allowed = [
      "run",
      "-q",
      "--min-dep-age=0",
      "--no-prompt",
      "--allow-read",
      `--allow-ffi=${cache}/npm`,
      "--allow-sys=systemMemoryInfo",
    ];
    const args = [...allowed, `npm:${NAME}@${VERSION}`, ...ASK];
    await step("deno run npm:, the first time", () => firstText(deno, args, options));
    await step("deno run npm:, again", () => firstText(deno, args, options));
    await step("the library in a program of Deno's", async () => {
      const program = join(work, "use.ts");
      await Deno.writeTextFile(program, LIBRARY_PROGRAM.replace(`"${NAME}"`, `"npm:${NAME}@${VERSION}"`));
      assertMatch(await output(deno, [...allowed, program], options), ANSWER);
    });
    await step(
      "npx out of the registry, nothing installed before",
      () => firstText("npx", ["--yes", `${NAME}@${VERSION}`, ...ASK], { ...options, cwd: env.HOME }),
    );
  } finally {
    try {
      server.kill("SIGTERM");
    } catch {
      // The registry has already ended, and the steps have reported it.
    }
    await server.status;
    await Promise.allSettled(said);
  }
}

/** Returns name and version of compy's and Deno's packages for other platforms. */
async function otherPlatforms(project: string): Promise<[name: string, version: string][]> {
  const packages = [join(DIST, "npm/package.json"), join(project, "node_modules/deno/package.json")];
  const optional = await Promise.all(
    packages.map(async (path) =>
      JSON.parse(await Deno.readTextFile(path)).optionalDependencies as Record<string, string>
    ),
  );
  return optional.flatMap(Object.entries).filter(([name]) => name !== platform && name !== denoPlatform);
}

/**
 * Returns stand-in packages for other platforms. Deno requires every optional dependency to exist, but a partial
 * registry or a release of one platform may lack some.
 */
async function standIns(platforms: readonly [name: string, version: string][]): Promise<string[]> {
  return await Promise.all(platforms.map(async ([name, version]) => {
    const folder = join(work, "other", name);
    await Deno.mkdir(folder, { recursive: true });
    const [os, cpu] = name.slice(name.indexOf("/") + 1).split("-");
    await Deno.writeTextFile(
      join(folder, "package.json"),
      JSON.stringify({ name, version, os: [os], cpu: [cpu] }),
    );
    return folder;
  }));
}

/** Tests the release folder, without a network if this system can disable it. */
async function releaseFolder(): Promise<void> {
  await step("unpacking the release folder", async () => {
    await output("tar", ["-xzf", join(DIST, `${FOLDER}.tar.gz`)]);
    assertEquals(
      (await Array.fromAsync(Deno.readDir(work))).filter(({ name }) => name.startsWith(NAME)).length,
      1,
    );
  });
  const program = join(work, FOLDER, NAME);
  const alone = await output("unshare", ["-rn", "true"]).then(() => true, () => false);
  const [command, before] = alone ? ["unshare", ["-rn", program]] : [program, []];
  await step(
    `the release folder${alone ? " without a network" : ""}`,
    () => firstText(command, [...before, ...ASK]),
  );
  await step(
    "the release folder without FFI, on WebAssembly",
    () => firstText(program, [`--allow-ffi=${work}`, ...ASK]),
  );
  await step("a server from the release folder", () => serves(program, []));
  await step("a server that may write elsewhere", async () => {
    const folder = join(work, "elsewhere");
    const child = start(program, ["serve", "--port", "0", "--data", folder]);
    assertEquals((await child.status).code, 1);
    await child.stdout.cancel();
    assertMatch(await new Response(child.stderr).text(), /Allow it with compy --allow-write=/);
    await serves("sh", ["-c", `exec ${program} --allow-write=${folder} "$@" --data ${folder}`, "sh"]);
  });
}

/** Tests the library as JSR would publish it, under a scoped name. */
async function jsr(): Promise<void> {
  const copy = join(work, "jsr");
  await output("git", ["clone", "--quiet", "--no-hardlinks", root, copy]);
  const json = JSON.parse(await Deno.readTextFile(join(copy, "deno.json")));
  await Deno.writeTextFile(join(copy, "deno.json"), JSON.stringify({ ...json, name: `@${NAME}/${NAME}` }));
  const own = Deno.env.toObject();
  await output(Deno.execPath(), ["publish", "--dry-run", "--allow-dirty"], { cwd: copy }, own);
}

async function sizes(): Promise<void> {
  for (const path of [MAIN_TAR, PLATFORM_TAR, join(DIST, `${FOLDER}.tar.gz`)]) {
    const { size } = await Deno.stat(path).catch(() => {
      throw new Error(`No ${path}: run 'deno task release' first, which makes what is tested here`);
    });
    say(`    ${(size / 1e6).toFixed(1).padStart(6)} MB  ${path.slice(DIST.length + 1)}`);
  }
  await output("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: DIST });
}

try {
  await Deno.mkdir(env.HOME);
  const cargo = await output("sh", [
    "-c",
    "command -v cargo || command -v rustup || command -v deno || true",
  ]);
  assertEquals(cargo, "", "No compiler and no Deno may be within reach");
  await sizes();
  await releaseFolder();
  await npm();
  await step("deno publish --dry-run: exports and slow types", jsr);
  await fromRegistry(join(work, "project"));
  say(`All of ${NAME} ${VERSION} works without a compiler, on Deno ${DENO_VERSION}`);
} finally {
  await Deno.remove(work, { recursive: true });
}
