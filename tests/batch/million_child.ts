import { runBatch } from "../../jobs/run/runner.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";

/*
 * Runs the job in the folder of its argument with an engine that answers at once, and serves its state over HTTP, for million.ts. Prints
 * the server's port first and the result last.
 */
const [folder] = Deno.args;

let state: Record<string, unknown> = { phase: "check" };
let peak = 0;
setInterval(() => peak = Math.max(peak, Deno.memoryUsage().rss), 50);
const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: ({ port }) => say({ port }) }, () => {
  return Response.json(state);
});

const { counts } = await runBatch({
  input: `${folder}/in.jsonl`,
  output: `${folder}/out.jsonl`,
  errors: `${folder}/err.jsonl`,
  parallel: 16,
  limits: TEST_LIMITS,
  connect: () => Promise.resolve({ settings: { model: "fake" }, execute }),
  onEvent: (event) => {
    if (event.type === "finishing") state = { ...state, phase: "finish" };
    else if (event.type === "started" || event.type === "progress") {
      state = { phase: "run", ...event.progress };
    }
  },
});
await server.shutdown();
say({ counts, peak });
Deno.exit(0);

function execute({ body }: { body: Record<string, unknown> }) {
  const usage = { prompt_tokens: 3, completion_tokens: 4 };
  return Promise.resolve({
    status: 200,
    body: { object: "text_completion", text: `${body.prompt}!`, usage },
  });
}

function say(value: unknown): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${JSON.stringify(value)}\n`));
}
