/**
 * Tests call formats and thinking markers with the templates of real models (`deno task templates`). Each format must
 * be recognised, scripted answers must be parsed the same in every chunking, and the grammar must accept them. Calls of
 * earlier turns, as the template writes them, must be parsed as the same calls. Templates come with llama.cpp's source
 * in npm's node-llama-cpp, and one from PyPI. Needs npm, tar, git and Python with pip.
 */
import { assertEquals } from "@std/assert";
import { checkAnswers, checkHistory, checkTaken } from "../../engine/chat/formats/testing_answers.ts";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { campaignLine } from "../../testing/campaign.ts";
import { fetchTemplates, modelOf, REAL_TEMPLATES, type RealTemplate } from "../models/real_templates.ts";

const { scripts: count, seed, only, peer } = campaignLine({
  task: "templates",
  does: "Read and write calls and thinking with the templates of real models.",
  options: {
    scripts: ["scripted answers for each template, as many histories", 50],
    only: ["a part of the templates' names", undefined],
    peer: ["folder in which node-llama-cpp is installed; without it, it is fetched", undefined],
    seed: ["what chance begins with", 1],
  },
});

/** Requests without a thinking setting, and with one that turns thinking on. */
const REQUESTS = [{}, { effort: "high" }] as const;

async function check(template: RealTemplate, source: string): Promise<void> {
  const { form, model } = modelOf(template, source);
  assertEquals(model.form.toolFormat, form.format);
  for (const request of REQUESTS) {
    checkAnswers(model, form, seed, count, request);
    checkHistory(model, form, seed + 1, count, { ...request }, template.tells);
    const grammars = createGrammars(model.tokenizer, model.form.markers);
    try {
      await checkTaken(grammars, model, form, seed + 2, count, request);
    } finally {
      grammars.close();
    }
  }
}

const folder = await Deno.makeTempDir({ prefix: "compy-templates-" });
const say = (line: string) => Deno.stdout.write(new TextEncoder().encode(`${line}\n`));
let wrong = 0;
try {
  const sources = await fetchTemplates(folder, peer);
  for (const template of REAL_TEMPLATES.filter(({ name }) => name.includes(only ?? ""))) {
    const { name, title } = template;
    try {
      const source = sources.get(name);
      if (source === undefined) throw new Error("is not among those that were fetched");
      await check(template, source);
      await say(`${name.padEnd(48)} as ${title}: ${count} answers and histories, twice`);
    } catch (error) {
      wrong++;
      await say(`${name.padEnd(48)} as ${title}: ${(error as Error).message}`);
    }
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
if (wrong > 0) Deno.exit(1);
