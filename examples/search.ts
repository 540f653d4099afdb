// deno-lint-ignore-file no-console
/**
 * Finds the lines of a text that are nearest in meaning to a question:
 * `deno run -P=library examples/search.ts TEXT.txt "QUESTION" [MODEL.gguf]`. The demo model knows little; take a model for embeddings.
 */
import { loadModel } from "compy";

const [file, question, modelFile] = Deno.args;
const lines = (await Deno.readTextFile(file)).split("\n").filter((line) => line.trim() !== "");

await using model = await loadModel(modelFile, { parallel: 16 });
const { vectors: [asked] } = await model.embed(question);
const { vectors, usage } = await model.embed(lines);

const likeness = (vector: Float32Array) => vector.reduce((sum, x, i) => sum + x * asked[i], 0); // of length 1, both
const found = vectors
  .map((vector, i) => ({ line: lines[i], score: likeness(vector) }))
  .sort((a, b) => b.score - a.score);

for (const { line, score } of found.slice(0, 3)) console.log(`${score.toFixed(3)}  ${line}`);
console.log(`(${lines.length} lines, ${usage.promptTokens} tokens)`);
