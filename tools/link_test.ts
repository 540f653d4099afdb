import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { link } from "./link.ts";

/** Starts sh or a launcher in the folder `cwd`, and returns its output. */
async function start(path: string, args: string[], cwd: string): Promise<string> {
  const { stdout, stderr } = await new Deno.Command(path, {
    args,
    cwd,
    stdin: "null",
    env: { PATH: "/usr/bin:/bin" },
  })
    .output();
  return new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
}

Deno.test("link: the launcher starts the checkout's commands from any folder, with any folder names", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const [root, bin, caller] = ['it\'s "mine", ü', "my bin", "a çaller"].map((name) => join(folder, name));
    for (const path of [root, caller]) await Deno.mkdir(path);
    const deno = join(root, "my deno");
    await Deno.writeTextFile(deno, `#!/bin/sh\npwd\nprintf '%s|' "$@" "\${INIT_CWD-unset}"\n`, {
      mode: 0o755,
    });
    await Deno.copyFile(new URL("../deno.json", import.meta.url), join(root, "deno.json"));
    await Deno.writeTextFile(join(root, "main.ts"), "");
    const path = await link(bin, root, deno);
    assertEquals(
      await start(path, ["tokenize", "--text", 'it\'s "two" words', ""], caller),
      `${caller}\nrun|-q|--no-prompt|--config|${root}/deno.json|-P=compute|${root}/main.ts|--linked|tokenize|` +
        `--text|it's "two" words||unset|`,
    );
    assertStringIncludes(
      await start(path, ["--allow-write=/a b", "serve"], caller),
      "|-P=serve|--allow-write=/a b|",
    );
    await link(bin, root, deno); // the launcher overwrites its own file
    await Deno.remove(deno);
    assertStringIncludes(await start(path, [], caller), `Error: Deno is neither at ${deno} nor on the PATH`);
    await Deno.remove(join(root, "main.ts"));
    assertStringIncludes(await start(path, [], caller), `Error: compy's checkout is no longer in ${root}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("link: does not overwrite another program of the same name", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(join(folder, "compy"), "#!/bin/sh\n");
    await assertRejects(() => link(folder, folder, "deno"), Error, "is another program: remove it first");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
