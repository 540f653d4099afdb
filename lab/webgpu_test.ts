import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";

const ROOT = fromFileUrl(new URL("..", import.meta.url));

async function bench(...args: string[]) {
  const command = ["run", "-q", "-P=peers", "lab/webgpu.ts", ...args];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args: command, cwd: ROOT })
    .output();
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout), err: decoder.decode(stderr) };
}

const adapter = await globalThis.navigator.gpu?.requestAdapter();

Deno.test({
  name: "bench:webgpu: prints a row per format and arithmetic, as JSON",
  ignore: !adapter,
  async fn() {
    const small = ["--shape", "256x256", "--set", "1", "--types", "Q4_0", "--modes", "f32", "--json"];
    const { code, out } = await bench(...small);
    assertEquals(code, 0);
    const { copy_gbps, rows } = JSON.parse(out);
    assert(copy_gbps > 0);
    assertEquals(rows.map((r: { type: string; mode: string }) => [r.type, r.mode]), [["Q4_0", "f32"]]);
    assert(rows[0].gbps > 0 && rows[0].share > 0 && rows[0].spread >= 1);
  },
});

Deno.test("bench:webgpu: names a wrong option and what is allowed", async () => {
  const { code, err } = await bench("--types", "Q9_9");
  assertEquals(code, 2);
  assert(err.includes(`--types must be among F32`), err);
});
