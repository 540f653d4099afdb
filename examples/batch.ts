// deno-lint-ignore-file no-console
/**
 * Answers a file with one question per line: `deno run -P=library examples/batch.ts QUESTIONS.txt ANSWERS.jsonl [MODEL.gguf]`.
 * Stop it at any time: the same command resumes it.
 */
import { loadModel, runBatch } from "compy";

const [questions, output, file] = Deno.args;
const input = `${output}.requests`;
const lines = (await Deno.readTextFile(questions)).split("\n").filter((line) => line.trim() !== "");
const request = (content: string, i: number) => ({
  custom_id: `line-${i + 1}`,
  method: "POST",
  url: "/v1/chat/completions",
  body: { messages: [{ role: "user", content }], max_tokens: 40, seed: i },
});
await Deno.writeTextFile(input, lines.map((line, i) => `${JSON.stringify(request(line, i))}\n`).join(""));

const stop = new AbortController();
Deno.addSignalListener("SIGINT", () => stop.abort());
const { state, counts } = await runBatch(() => loadModel(file, { parallel: 16 }), {
  input,
  output,
  signal: stop.signal,
  onProgress: ({ completed, failed, total }) => console.log(`${completed + failed} of ${total}`),
});
console.log(`${state}: ${counts.completed} answers, ${counts.failed} errors`);
