import { assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path";
import { root, withFolder } from "../../testing/commands.ts";

/* Commands under ulimits that are too small. The message must name the limit, the needed value and the remedy. */

/** Runs a command under a limit, which it cannot raise again. */
async function limited(limit: string, permissions: readonly string[], args: readonly string[]) {
  const { code, stderr } = await new Deno.Command("sh", {
    args: [
      "-c",
      `ulimit ${limit}; exec "$0" "$@"`,
      Deno.execPath(),
      "run",
      "-q",
      ...permissions,
      "main.ts",
      ...args,
    ],
    cwd: root,
    env: { NO_COLOR: "1" },
  }).output();
  return { code, told: new TextDecoder().decode(stderr) };
}

const STACK =
  /^Error: This process has a stack of 512 KiB \(ulimit -s\), and 2048 are needed: .*; raise it with ulimit -s 8192.*\n$/;

Deno.test({
  name: "commands: refuse a stack that is too small",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (folder) => {
      const output = join(folder, "out.jsonl");
      const cases = [
        ["-P=compute", "generate", "Hi", "--max-tokens", "1"],
        ["-P=compute", "chat", "Hi"],
        ["-P=batch", "batch", "run", join(folder, "in.jsonl"), "--out", output],
        ["-P=embed", "embed", join(folder, "in.jsonl"), "--out", output],
      ];
      for (const [set, ...args] of cases) {
        const { code, told } = await limited("-s 512", [set], args);
        assertEquals(code, 1, told);
        assertMatch(told, STACK);
      }
    }),
});

Deno.test({
  name: "serve: refuses a stack or a number of descriptors that is too small, and names the limit",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (folder) => {
      const serve = ["serve", "--port", "0", "--data", join(folder, "data"), "--backend", "wasm"];
      const permissions = ["-P=serve", `--allow-write=${folder}`];
      const cases = [
        [
          "-s 512",
          STACK,
        ],
        [
          "-n 40",
          /^Error: Cannot serve with \d+ free file descriptors: .*; raise the limit \(ulimit -n\)\n$/,
        ],
      ] as const;
      for (const [limit, message] of cases) {
        const { code, told } = await limited(limit, permissions, serve);
        assertEquals(code, 1, told);
        assertMatch(told, message);
      }
      assertEquals([...Deno.readDirSync(folder)], []);
    }),
});
