// deno-lint-ignore-file no-console
/**
 * Extracts data that always matches a schema from texts, one per line: `deno run -P=library examples/extract.ts TEXTS.txt [MODEL.gguf]`.
 */
import { z } from "zod";
import { loadModel } from "compy";

const Person = z.strictObject({
  name: z.string().max(24),
  age: z.int().min(0).max(130).nullable(),
  likes: z.array(z.string().max(16)).max(3),
});
const schema = z.toJSONSchema(Person);

const [file, modelFile] = Deno.args;
const lines = (await Deno.readTextFile(file)).split("\n").filter((line) => line.trim() !== "");
await using model = await loadModel(modelFile, { parallel: lines.length });

// Concurrent requests share the model's steps, and each answer is the same as alone.
const answers = await Promise.all(lines.map((line, seed) => {
  const messages = [
    { role: "system", content: "Who is this about? Answer in JSON." },
    { role: "user", content: line },
  ] as const;
  return model.chat(messages, { schema, temperature: 0.2, seed, effort: "none" }).answer();
}));
for (const { json, usage } of answers) {
  const { name, age, likes } = Person.parse(json);
  console.log(
    `${name}, ${age ?? "of unknown age"}, likes ${
      likes.join(", ") || "nothing"
    } (${usage.completionTokens} tokens)`,
  );
}
