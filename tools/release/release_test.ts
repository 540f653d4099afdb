import { assert, assertEquals, assertMatch } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { fullTier } from "../../testing/tier.ts";
import { commandsOf, type DenoJson, installedConfig, OLD_DENO } from "./commands.ts";
import { writeDeclarations } from "./declarations.ts";
import { nodeLauncher, shellLauncher } from "./launchers.ts";
import { obstacle } from "../../cli/shared/start.ts";
import { isNewer } from "./libraries.ts";
import { pack, writeMainPackage } from "./npm.ts";
import { DENO_VERSION, installedWords, NAME, VERSION } from "../../package.ts";

const json: DenoJson = JSON.parse(await Deno.readTextFile(new URL("../../deno.json", import.meta.url)));
/** A small deno.json, so that launcher tests do not change with the commands. */
const SMALL: DenoJson = {
  version: "1.0.0",
  imports: {},
  tasks: {
    build: "cargo build",
    serve: "GPU=some deno run -q -P=serve main.ts serve",
    generate: "deno run -q --v8-flags=--a=4 -P=compute main.ts generate",
  },
  permissions: {
    serve: { read: true, write: [".data", "/run/x"], net: ["127.0.0.1"], ffi: ["target"] },
    compute: { read: true, ffi: ["target"] },
    build: { run: ["cargo"] },
  },
};

/** Runs a test in a release folder whose Deno prints its arguments. */
async function withLaunchers(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  const spy = '#!/bin/sh\nprintf "%s|" "$@"; printf "GPU=%s" "${GPU-}"\nexit 7\n';
  try {
    await Deno.mkdir(join(folder, "js"));
    await Deno.writeTextFile(join(folder, "compy"), await shellLauncher(SMALL), { mode: 0o755 });
    await Deno.writeTextFile(join(folder, "deno"), spy, { mode: 0o755 });
    const { os, arch } = { os: "linux", arch: Deno.build.arch === "aarch64" ? "arm64" : "x64" };
    const modules = join(folder, "node_modules");
    for (const name of ["deno", `@deno/${os}-${arch}-glibc`, `@compy/${os}-${arch}`]) {
      await Deno.mkdir(join(modules, name), { recursive: true });
      await Deno.writeTextFile(join(modules, name, "package.json"), "{}");
    }
    await Deno.writeTextFile(join(modules, `@deno/${os}-${arch}-glibc/deno`), spy, { mode: 0o755 });
    await Deno.writeTextFile(join(folder, "package.json"), '{"type":"module"}');
    await Deno.writeTextFile(join(folder, "bin.js"), await nodeLauncher(SMALL), { mode: 0o755 });
    await test(await Deno.realPath(folder));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function start(command: string, args: string[], env: Record<string, string> = {}): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(command, { args, env, stdin: "null" }).output();
  assertEquals(code, 7, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

Deno.test("release: an installed command has the permissions of its task", async () => {
  const help = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-P=compute", fromFileUrl(new URL("../../main.ts", import.meta.url)), "--help"],
    stdout: "piped",
  }).output();
  const named = [...new TextDecoder().decode(help.stdout).matchAll(/^ {2}(\w+) +\S/gm)].map(([, name]) =>
    name
  );
  assert(named.length >= 9, named.join());
  const commands = commandsOf(json);
  assertEquals(Object.keys(commands).sort(), named.sort());
  assertEquals(commands.serve.set, "serve");
  assertEquals(commands.serve.write, ".compy,/run/compy");
  const { permissions } = JSON.parse(installedConfig(json, ["."]));
  for (const { set } of Object.values(commands)) {
    assert(set in permissions, set);
    if ("ffi" in json.permissions[set]) assertEquals(permissions[set].ffi, ["."]);
  }
  assert(!("test" in permissions) && !("build" in permissions));
  // Permissions for builds exist only in a checkout.
  assertEquals([permissions.batch.run, permissions.bench.run, permissions.bench.write], [
    ["cat"],
    ["cat"],
    undefined,
  ]);
});

Deno.test("tasks: every command tells the user of an old Deno which version it needs", async () => {
  const commands = Object.keys(commandsOf(json));
  assertEquals(commands.filter((name) => !json.tasks[name].startsWith(OLD_DENO)), []);
  const told = await Deno.readTextFile(new URL("../old_deno.txt", import.meta.url));
  assertEquals(
    told,
    `Error: ${
      obstacle([], { deno: "1.0.0", mayRead: true, isCommand: () => false })!.replace(" (this is 1.0.0)", "")
    }\n`,
  );
});

Deno.test("release: the release folder's launcher passes a command's permissions; the caller's own replace them", async () => {
  await withLaunchers(async (folder) => {
    const deno = (flags: string) => `run|-q|--no-prompt|--config|${folder}/deno.json|${flags}`;
    const main = `${folder}/js/main.js`;
    assertEquals(
      await start(`${folder}/compy`, ["generate", "--chat", "a b", ""]),
      deno(`-P=compute|--v8-flags=--a=4|${main}|generate|--chat|a b||GPU=`),
    );
    assertEquals(
      await start(`${folder}/compy`, ["serve"]),
      deno(`-P=serve|--allow-write=.data,/run/x|${main}|serve|GPU=some`),
    );
    assertEquals(
      await start(`${folder}/compy`, ["--allow-write=/a b", "--allow-sys", "serve", "--data", "/a b"], {
        GPU: "mine",
      }),
      deno(`-P=serve|--allow-write=/a b|--allow-sys|${main}|serve|--data|/a b|GPU=mine`),
    );
    assertEquals(await start(`${folder}/compy`, []), deno(`-P=compute|--v8-flags=--a=4|${main}|GPU=`));
    await Deno.symlink(`${folder}/compy`, `${folder}/link`);
    assertMatch(await start(`${folder}/link`, ["serve"]), new RegExp(`\\|${main}\\|serve\\|`));
  });
});

Deno.test("release: npm's launcher starts the platform's Deno, which may load only the platform's libraries", async () => {
  await withLaunchers(async (folder) => {
    const library = `${folder}/node_modules/@compy/linux-${Deno.build.arch === "aarch64" ? "arm64" : "x64"}`;
    const deno = (flags: string) => `run|-q|--no-prompt|--config|${folder}/deno.json|${flags}`;
    const main = `${folder}/js/main.js`;
    assertEquals(
      await start("node", [`${folder}/bin.js`, "generate", "a b", ""]),
      deno(`-P=compute|--v8-flags=--a=4|--allow-ffi=${library}|${main}|generate|a b||GPU=`),
    );
    assertEquals(
      await start("node", [
        `${folder}/bin.js`,
        "--allow-write=/a",
        "--allow-ffi=/b",
        "serve",
        "--allow-ffi=c",
      ]),
      deno(`-P=serve|--allow-write=/a|--allow-ffi=/b|${main}|serve|--allow-ffi=c|GPU=some`),
    );
    // The program reports unknown commands, even if every object has a property of that name.
    assertMatch(await start("node", [`${folder}/bin.js`, "constructor"]), /\|-P=compute\|.*\|constructor\|/);
    assertEquals(
      await start("node", [`${folder}/bin.js`, "serve"], { GPU: "mine" }),
      deno(`-P=serve|--allow-write=.data,/run/x|--allow-ffi=${library}|${main}|serve|GPU=mine`),
    );
  });
});

Deno.test("release: npm's launcher forwards signals and exits like the command", async () => {
  await withLaunchers(async (folder) => {
    const deno = `${folder}/node_modules/@deno/linux-${
      Deno.build.arch === "aarch64" ? "arm64" : "x64"
    }-glibc/deno`;
    const trap = `#!/bin/sh\ntrap 'exit 3' TERM INT HUP\necho ready\nwhile :; do sleep 0.05; done\n`;
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      await Deno.writeTextFile(deno, trap, { mode: 0o755 });
      const child = new Deno.Command("node", { args: [`${folder}/bin.js`], stdin: "null", stdout: "piped" })
        .spawn();
      const reader = child.stdout.getReader();
      await reader.read();
      child.kill(signal);
      assertEquals((await child.status).code, 3, signal);
      await reader.cancel();
    }
    await Deno.writeTextFile(deno, "#!/bin/sh\nkill -9 $$\n", { mode: 0o755 });
    const { code } = await new Deno.Command("node", { args: [`${folder}/bin.js`], stdin: "null" }).output();
    assertEquals(code, 137);
  });
});

Deno.test("release: the npm package has only the program, declarations, WebAssembly kernels, page and model", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.mkdir(join(folder, "js"));
    for (const name of ["main.js", "mod.js", "mod.d.ts"]) {
      await Deno.writeTextFile(join(folder, "js", name), "");
    }
    await writeMainPackage(fromFileUrl(new URL("../../", import.meta.url)), json, ["hono", "compy"], folder);
    const { dependencies, optionalDependencies } = JSON.parse(
      await Deno.readTextFile(join(folder, "package.json")),
    );
    assertEquals(Object.keys(dependencies), ["deno", "hono"]);
    assertEquals(dependencies.deno, DENO_VERSION);
    const { koffi, ...libraries } = optionalDependencies;
    assertMatch(koffi, /^\d+\.\d+\.\d+$/);
    assertEquals([...new Set(Object.values(libraries))], [VERSION]);
    const { files } = await pack(folder, folder);
    const page = files.filter((path) => path.startsWith("routes/page/"));
    assert(page.includes("routes/page/index.html") && page.includes("routes/page/app.js"), page.join());
    assertEquals(page.filter((path) => !/\.(html|css|js|svg)$/.test(path)), []);
    assertEquals(files.filter((path) => !page.includes(path)).sort(), [
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "bin.js",
      "deno.json",
      "engine/backend/wasm/compy.wasm",
      "engine/vision/images.licences.md",
      "engine/vision/images.wasm",
      "index.js",
      "js/main.js",
      "js/mod.d.ts",
      "js/mod.js",
      "models/demo.gguf",
      "node_version.js",
      "package.json",
    ]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

fullTier.test("release: the library's declarations are complete, and mention no backend and no package except Hono", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const packages = await writeDeclarations(
      fromFileUrl(new URL("../../", import.meta.url)),
      "mod.ts",
      folder,
    );
    assertEquals([...packages].filter((name) => name !== NAME), ["hono"]);
    assertMatch(
      await Deno.readTextFile(join(folder, "mod.d.ts")),
      /\bloadModel\b[^]* from "\.\/lib\/model\.js"/,
    );
    const backends = await Array.fromAsync(Deno.readDir(join(folder, "engine/backend")));
    assertEquals(backends.map(({ name }) => name), ["backend.d.ts"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("release: help and messages use the installed command name", () => {
  const cases = [
    ["Usage: deno task serve [options]", "Usage: compy serve [options]"],
    ["deno task -q generate", "compy generate"],
    ["deno task ${name} --help", "compy ${name} --help"],
    ["deno run main.ts --help", "compy --help"],
    ["deno run -P=serve --allow-write=DIR main.ts serve", "compy --allow-write=DIR serve"],
    ["deno task bench:webgpu --tune", "deno task bench:webgpu --tune"],
    ["deno task build", "deno task build"],
    ["deno run npm:compy", "deno run npm:compy"],
  ];
  for (const [before, after] of cases) assertEquals(installedWords(before), after);
});

Deno.test("release: compares glibc versions number by number", () => {
  assert(isNewer("2.34", "2.31") && isNewer("2.31", "2.4") && isNewer("2.2.5", "2.2"));
  assert(!isNewer("2.31", "2.31") && !isNewer("2.4", "2.31") && !isNewer("2.2", "2.2.5"));
});
