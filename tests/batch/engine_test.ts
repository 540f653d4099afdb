import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { fullTier } from "../../testing/tier.ts";

/* The batch command on the demo model, with kernels, engine, runner and files. */

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
const LINES = 200;
const KILLS = 20;
/** Line numbers (from 1) of bad lines, and their errors. */
const BAD: Record<number, { line: string; custom_id: string | null; code: string }> = {
  11: { line: "{", custom_id: null, code: "invalid_json" },
  51: { line: good(49), custom_id: "q49", code: "duplicate_custom_id" },
  91: { line: good(90, { stream: true }), custom_id: "q90", code: "stream_not_allowed" },
  131: { line: good(130, { temperature: 9 }), custom_id: "q130", code: "invalid_value" },
  171: {
    line: good(170, { content: "a fern ".repeat(400) }),
    custom_id: "q170",
    code: "context_length_exceeded",
  },
};

function good(n: number, { content = `Tell me story ${n}`, ...more }: Record<string, unknown> = {}): string {
  // Half greedy, half sampled: both must be the same after a crash.
  const sampling = n % 2 === 0 ? { temperature: 0 } : { temperature: 1, seed: n };
  const body = {
    model: "demo",
    messages: [{ role: "user", content }],
    max_tokens: 8 + n % 17,
    ...sampling,
    ...more,
  };
  return JSON.stringify({ custom_id: `q${n}`, method: "POST", url: "/v1/chat/completions", body });
}

async function newJob(): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "batch-engine-" });
  const lines = Array.from({ length: LINES }, (_, n) => BAD[n + 1]?.line ?? good(n));
  await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
  return folder;
}

/** Runs the job, or kills it at this number of answers in the journal. Returns the exit code or the signal. */
async function run(folder: string, kill?: { answers: number }): Promise<number | string> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-q",
      "-P=batch",
      "main.ts",
      "batch",
      "run",
      `${folder}/in.jsonl`,
      "--out",
      `${folder}/out.jsonl`,
    ],
    cwd: ROOT,
    stdin: "null",
    stdout: "null",
    stderr: "null",
    detached: true, // the process gets its own process group
  }).spawn();
  let hasEnded = false;
  child.status.then(() => hasEnded = true);
  while (kill && !hasEnded && answered(folder) < kill.answers) {
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  if (kill && !hasEnded) Deno.kill(-child.pid, "SIGKILL");
  const { code, signal } = await child.status;
  return signal ?? code;
}

/** Number of answers in the journal. */
function answered(folder: string): number {
  try {
    return new TextDecoder("latin1").decode(Deno.readFileSync(`${folder}/out.jsonl.journal`)).split(
      '"custom_id"',
    )
      .length - 1;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}

interface Answer {
  custom_id: string | null;
  response: { status_code: number; body: Record<string, unknown> };
}

async function read(path: string): Promise<Answer[]> {
  return (await Deno.readTextFile(path)).trimEnd().split("\n").map((text) => JSON.parse(text));
}

/** The line without ids and times of one run. */
function lasting({ custom_id, response: { status_code, body } }: Answer) {
  const { id: _id, created: _created, usage, ...rest } = body;
  const { prompt_tokens, completion_tokens } = (usage ?? {}) as Record<string, number>;
  return { custom_id, status_code, ...rest, prompt_tokens, completion_tokens };
}

fullTier.test("batch: 195 answers and 5 errors stay the same after 20 kills", async () => {
  const whole = await newJob();
  let killed = await newJob();
  assertEquals(await run(whole), 0);
  const answers = await read(`${whole}/out.jsonl`);
  const ids = Array.from({ length: LINES }, (_, n) => n).filter((n) => !BAD[n + 1]).map((n) => `q${n}`);
  assertEquals(answers.map(({ custom_id }) => custom_id), ids);
  assert(answers.every(({ response }) => response.status_code === 200));
  const errors = await read(`${whole}/out.errors.jsonl`);
  assertEquals(
    errors.map(({ custom_id, response: { status_code, body } }) => (
      { custom_id, status_code, code: (body.error as { code: string }).code }
    )),
    Object.values(BAD).map(({ custom_id, code }) => ({ custom_id, status_code: 400, code })),
  );

  let kills = 0;
  for (let kill = 1; kill <= KILLS; kill++) {
    const end = await run(killed, { answers: Math.floor(kill * 0.9 * LINES / KILLS) });
    if (end === "SIGKILL") kills++;
    else killed = await newJob(); // on a busy machine a job may end between two reads of its journal
  }
  assert(kills >= KILLS / 2, `only ${kills} runs were killed`);
  assertEquals(await run(killed), 0);
  for (const name of ["out.jsonl", "out.errors.jsonl"]) {
    const [one, other] = [await read(`${whole}/${name}`), await read(`${killed}/${name}`)];
    assertEquals(other.map(lasting), one.map(lasting));
  }
  for (const folder of [whole, killed]) await Deno.remove(folder, { recursive: true });
});
