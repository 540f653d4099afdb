import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { batchCommand } from "../../cli/batch/batch.ts";
import { realWorld } from "../../cli/batch/world.ts";
import { inFolder } from "./commands.ts";

/* Compares a dry run's report with a real run, on the demo model. */

async function batch(args: string[]): Promise<{ code: number; out: string; err: string }> {
  const words = { out: "", err: "" };
  const host = {
    ...realWorld.host,
    out: (text: string) => words.out += text,
    err: (text: string) => words.err += text,
    draw: () => {},
    columns: () => undefined,
  };
  return { code: await batchCommand(args, { ...realWorld, host }), ...words };
}

function line(n: number): string {
  const urls = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"];
  const long = "long ".repeat(n % 10 === 0 ? 60 : 1);
  const messages = [{ role: "user", content: `Say ${long}${n}` }];
  const bodies = [
    { messages, max_tokens: 5, temperature: 0 },
    { prompt: `Once ${long}${n}`, max_tokens: 4, n: 2, ignore_eos: true },
    { input: `Say ${long}${n}`, max_output_tokens: 5 },
    { messages, max_tokens: 3 },
    { input: [`one ${n}`, `two ${long}${n}`] },
  ];
  const at = n % urls.length;
  return JSON.stringify({ custom_id: `q${n}`, method: "POST", url: urls[at], body: bodies[at] });
}

Deno.test("batch run --dry-run: reports the tokens and refused lines of a real run", async () => {
  const lines = [
    ...Array.from({ length: 60 }, (_, n) => line(n)),
    line(3).replace('"q3"', '"x"').replace("Say", ""),
  ];
  lines.push(
    '{"custom_id":"m","method":"POST","url":"/v1/completions","body":{"model":"other","prompt":"x"}}',
  );
  await inFolder(lines, async (path) => {
    const options = ["--ctx", "48", "--parallel", "8", "--json"];
    const dry = await batch(["run", path("in.jsonl"), "--dry-run", ...options]);
    const told = dry.out.trimEnd().split("\n").map((text) => JSON.parse(text));
    const { event, bad, prompt_tokens, output_tokens_limit, seconds, measured_lines } = told.at(-1);
    const names = (await Array.fromAsync(Deno.readDir(path(".")), ({ name }) => name)).sort();
    assertEquals([dry.code, event, names], [1, "dry_run", ["in.jsonl"]]);

    const run = await batch(["run", path("in.jsonl"), "--out", path("out.jsonl"), ...options]);
    const done = JSON.parse(run.out.trimEnd().split("\n").at(-1)!);
    assertEquals([done.event, done.failed, done.prompt_tokens], ["done", bad, prompt_tokens]);
    assert(done.output_tokens <= output_tokens_limit, `${done.output_tokens} > ${output_tokens_limit}`);
    const errors = (await Deno.readTextFile(path("out.errors.jsonl"))).trimEnd().split("\n");
    assertEquals(
      told.filter(({ event }) => event === "refused").map(({ custom_id }) => custom_id),
      errors.map((text) => JSON.parse(text).custom_id),
    );
    assert(seconds > 0 && measured_lines === 24, JSON.stringify(told.at(-1)));
  });
});

Deno.test("batch run --dry-run: reports on a table as text", async () => {
  await inFolder([], async (path) => {
    await Deno.writeTextFile(path("in.csv"), `id,text\n1,cats\n2,\n3,"${"x ".repeat(900)}"\n`);
    const args = [
      "run",
      path("in.csv"),
      "--prompt",
      "About {text}",
      "--max-tokens",
      "4",
      "--ctx",
      "128",
      "--dry-run",
    ];
    const { code, out } = await batch(args);
    assertEquals(code, 1);
    assertStringIncludes(out, 'Line 3 (row 2): the prompt would be empty: "text" is empty\n');
    assertStringIncludes(out, "Line 4 (row 3): This model's maximum context length is 128 tokens. ");
    assertStringIncludes(out, "in.csv: 3 lines, 2 cannot run\nPrompts: ");
    assertStringIncludes(out, "It would take about ");
    const nats = await batch([...args, "--nats", "nats://127.0.0.1"]);
    assertEquals(nats.code, 2);
    assertStringIncludes(nats.err, "--dry-run measures this machine");
  });
});
