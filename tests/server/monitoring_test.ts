import { assert, assertEquals } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { parse } from "@std/yaml";
import { BatchService } from "../../jobs/service/service.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { createApp } from "../../routes/app.ts";
import { FakeEngine } from "../../routes/testing.ts";
import { inDataFolder } from "../../routes/testing_batches.ts";

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
const read = (path: string) => Deno.readTextFileSync(join(ROOT, path));

/** Labels that Prometheus adds to every series that it scrapes. */
const SCRAPED = ["instance", "job"];
/** Words of PromQL that are neither functions nor metrics. */
const KEYWORDS = new Set(["and", "or", "unless", "bool", "offset"]);

/** The exported series: the values of each label, by the metric's name. */
type Exported = Map<string, Map<string, Set<string>>>;

const exported = await exportedSeries();
const { groups } = parse(read("deploy/monitoring/alerts.yml")) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap(({ rules }) => rules);
const dashboard = JSON.parse(read("deploy/monitoring/grafana.json"));

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: Readonly<Record<string, string>>;
}

Deno.test("alert rules: use metrics, labels and label values that the server exports", () => {
  assert(rules.length > 10, `${rules.length} rules`);
  for (const { alert, expr, annotations } of rules) {
    const labels = checkExpression(alert, expr);
    for (const text of Object.values(annotations)) {
      for (const [, label] of text.matchAll(/\$labels\.(\w+)/g)) {
        assert(labels.has(label), `${alert}: its text has the label ${label}, its series do not`);
      }
    }
  }
});

Deno.test("alert rules: select the job that the scrape configuration names", () => {
  const config = parse(read("deploy/monitoring/prometheus.yml")) as {
    scrape_configs: { job_name: string; metrics_path: string }[];
  };
  assertEquals(config.scrape_configs.map(({ job_name }) => job_name), ["compy"]);
  assertEquals(config.scrape_configs[0].metrics_path, "/metrics");
  const jobs = rules.flatMap(({ expr }) => [...expr.matchAll(/job="(.*?)"/g)].map(([, job]) => job));
  assertEquals(new Set(jobs), new Set(["compy"]));
});

Deno.test("dashboard: uses metrics, labels and label values that the server exports", () => {
  const { panels, templating } = dashboard;
  assert(panels.length > 10, `${panels.length} panels`);
  assertEquals(new Set(panels.map(({ id }: { id: number }) => id)).size, panels.length);
  for (const { title, targets } of panels) {
    for (const { expr, legendFormat } of targets) {
      const labels = checkExpression(title, expr);
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
        assert(labels.has(label), `${title}: its legend has the label ${label}, its series do not`);
      }
    }
  }
  for (const { definition } of templating.list.filter(({ type }: { type: string }) => type === "query")) {
    const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(definition)!;
    assert(labelsOf("variable", metric).has(label), definition);
  }
});

Deno.test("metrics: docs/OPERATIONS.md lists exactly the exported metrics and their labels", () => {
  const listed = new Map<string, string>();
  for (
    const [, names, labels] of read("docs/OPERATIONS.md").matchAll(/^\| (`\w+`.*?) \| \w+ \| ([^|]*?) ?\|/gm)
  ) {
    for (const [, name] of names.matchAll(/`((?:compy|process)_\w+)`/g)) listed.set(name, labels);
  }
  const actual = new Map<string, string>();
  for (const [name, labels] of exported) {
    const names = [...labels.keys()].filter((label) => label !== "le").sort();
    actual.set(name.replace(/_(bucket|sum|count)$/, ""), names.join(", "));
  }
  assertEquals(Object.fromEntries([...listed].sort()), Object.fromEntries([...actual].sort()));
});

/** Checks names, labels and values of a PromQL expression. Returns the possible labels of its series. */
function checkExpression(where: string, expression: string): Set<string> {
  const labels = new Set<string>();
  const values = expression.replace(/\[[^\]]*\]/g, "");
  const grouped = /\b(?:by|on|ignoring|without)\s*\(([^)]*)\)/g;
  const selectors = values.replace(grouped, "").matchAll(/(?<!\w)([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?/g);
  for (const [, name, matchers = "", call] of selectors) {
    if (call !== undefined || KEYWORDS.has(name)) continue;
    const known = labelsOf(where, name);
    for (const label of known.keys()) labels.add(label);
    for (const [, label, operator, value] of matchers.matchAll(/(\w+)\s*(=~|=)\s*"([^"]*)"/g)) {
      const found = known.get(label);
      assert(found, `${where}: ${name} has no label ${label}`);
      const isFree = value.startsWith("$") || SCRAPED.includes(label) ||
        name === "compy_http_responses_total";
      const pattern = new RegExp(`^(?:${operator === "=~" ? value : RegExp.escape(value)})$`);
      assert(isFree || [...found!].some((one) => pattern.test(one)), `${where}: no ${label} is ${value}`);
    }
  }
  for (const [, names] of values.matchAll(grouped)) {
    for (const label of names.split(",")) {
      assert(labels.has(label.trim()), `${where}: no series has the label ${label}`);
    }
  }
  return labels;
}

function labelsOf(where: string, name: string): Map<string, Set<string>> {
  const own = name === "up" ? new Map<string, Set<string>>() : exported.get(name);
  assert(own, `${where}: there is no metric ${name}`);
  return new Map([...own!, ...SCRAPED.map((label) => [label, new Set<string>()] as const)]);
}

/** The metrics of a server with files, batches and a prompt cache. */
async function exportedSeries(): Promise<Exported> {
  const engine = new FakeEngine();
  const stats = engine.stats.bind(engine);
  const disk = { hits: 0, tokens: 0, readBytes: 0, writes: 0, writtenBytes: 0, bytes: 0, limit: 1 };
  engine.stats = () => ({ ...stats(), disk });
  const series: Exported = new Map();
  await inDataFolder(async (path) => {
    const batches = await BatchService.open({
      path,
      parallel: 1,
      storageBytes: 1,
      lineLimits: TEST_LIMITS,
      settings: {},
      execute: () => Promise.reject(new Error("no line may run")),
      report: () => {},
    });
    const app = createApp(engine, { batches });
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ model: "demo", prompt: "a", max_tokens: 4 });
    await (await app.request("/v1/completions", { method: "POST", headers, body })).text();
    const text = await (await app.request("/metrics")).text();
    await batches.close();
    for (const [, name, labels = ""] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
      const known = series.get(name) ?? new Map<string, Set<string>>();
      series.set(name, known);
      for (const [, label, value] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
        known.set(label, (known.get(label) ?? new Set()).add(value));
      }
    }
  });
  return series;
}
