// deno-lint-ignore-file no-console
/**
 * Finds the lines of a text with the nearest meaning to a question:
 * `deno run -P=library examples/search.ts TEXT.txt "QUESTION" [MODEL.gguf]`. The demo model is too small for good results; use an embedding model.
 */
import { loadModel } from "compy";

const [file, question, modelFile] = Deno.args;
const lines = (await Deno.readTextFile(file)).split("\n").filter((line) => line.trim() !== "");

await using model = await loadModel(modelFile, { parallel: 16 });
const { vectors: [asked] } = await model.embed(question);
const { vectors, usage } = await model.embed(lines);

const likeness = (vector: Float32Array) => vector.reduce((sum, x, i) => sum + x * asked[i], 0); // both have length 1
const found = vectors
  .map((vector, i) => ({ line: lines[i], score: likeness(vector) }))
  .sort((a, b) => b.score - a.score);

for (const { line, score } of found.slice(0, 3)) console.log(`${score.toFixed(3)}  ${line}`);
console.log(`(${lines.length} lines, ${usage.promptTokens} tokens)`);
