import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import type { Diagnosis } from "../../doctor/doctor.ts";
import { run, runJson, withFolder } from "../../testing/commands.ts";

function found(checks: readonly Diagnosis[], name: string): Diagnosis {
  return checks.find(({ check }) => check === name)!;
}

Deno.test("doctor: this machine can serve the demo model, with plausible figures", async () => {
  const { ok, checks } = await runJson("doctor", "--port", "0", "--data", "none");
  assertEquals([ok, checks.filter(({ status }: Diagnosis) => status === "wrong")], [true, []]);
  assertStringIncludes(found(checks, "models").found, "1 model can run: demo");
  assertEquals(Number(found(checks, "bandwidth").figures?.read_gbps) > 0.1, true);
});

Deno.test("doctor: exits with 1 for a broken model and a taken port, even without measurements", async () => {
  await withFolder(async (folder) => {
    await Deno.writeTextFile(join(folder, "broken.gguf"), "GGUF and no more");
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { port } = listener.addr;
    const { code, stdout, stderr } = await run([
      "doctor",
      "--model",
      join(folder, "broken.gguf"),
      "--port",
      `${port}`,
      "--data",
      join(folder, "data"),
    ]);
    assertEquals([code, stderr.includes("bug in compy")], [1, false]);
    assertStringIncludes(stdout, `another program uses 127.0.0.1:${port}`);
    assertStringIncludes(stdout, `1 cannot: ${join(folder, "broken.gguf")}`);
    assertStringIncludes(
      stdout,
      `without --allow-write=${join(folder, "data")} files and batches cannot be kept`,
    );
    assertStringIncludes(stdout, "compy cannot run with these settings");
  });
});
