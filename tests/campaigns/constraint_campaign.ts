import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../../engine/gguf/reader.ts";
import { campaignLine } from "../../testing/campaign.ts";
import { answerSchemas, compileHostiles, mebibytes } from "../kernels/constraint_scenario.ts";

async function main(): Promise<number> {
  const { vocabulary, schemas, answers, seed } = campaignLine({
    task: "constraints",
    does:
      "Answer schemas with random tokens, judge each whole answer by ajv, and compile hostile schemas and grammars.",
    options: {
      schemas: ["schemas", 200],
      answers: ["answers to each", 10],
      vocabulary: ["GGUF file whose tokens they are made of; without it the demo model", undefined],
      seed: ["what chance begins with", 1],
    },
  });
  const paths = [vocabulary ?? fromFileUrl(new URL("../../models/demo.gguf", import.meta.url))];
  let code = 0;
  const say = (line: string) => Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
  for (const path of paths) {
    const tokenizer = createTokenizer((await openGguf(path)).metadata);
    const { invalid, failed, refused, unused, ...counts } = await answerSchemas(tokenizer, {
      count: schemas,
      answers,
      seed,
    });
    say(
      `${path}: ${
        JSON.stringify({
          ...counts,
          refused: refused.length,
          invalid: invalid.length,
          failed: failed.length,
          unused,
        })
      }`,
    );
    for (const { schema, message } of refused) say(`  refused ${JSON.stringify(schema)}: ${message}`);
    for (const { schema, text, why } of invalid) say(`  INVALID ${JSON.stringify(schema)}: ${text}: ${why}`);
    for (const { schema, text } of failed) say(`  FAILED ${JSON.stringify(schema)}: ${text}`);
    const hostiles = await compileHostiles(tokenizer, 1000, {
      tell: (line) => say(`  ${line.slice(0, 300)}`),
    });
    const { compiled, refused: turnedAway, late, grown } = hostiles;
    say(
      `hostile: ${compiled} compiled, ${turnedAway} refused, late: ${late.join("; ") || "none"}, ${
        mebibytes(grown)
      } MiB grown`,
    );
    if (late.length > 0 || grown > 64 << 20) code = 1;
    if (invalid.length + failed.length + unused.length > 0) code = 1;
  }
  return code;
}

if (import.meta.main) Deno.exit(await main());
