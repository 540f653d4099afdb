import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Engine, Models } from "../engine/mod.ts";
import type { Env } from "./core/context.ts";

type Document = ReturnType<OpenAPIHono["getOpenAPI31Document"]>;
type SchemaObject = Exclude<
  NonNullable<NonNullable<Document["components"]>["schemas"]>[string],
  { $ref: string }
>;

const DESCRIPTION =
  "The OpenAI API over GGUF models. Every answer has an x-request-id. A path answers other " +
  "methods than those listed with 405 and an Allow header.";

export interface DocumentOptions {
  readonly withKeys: boolean;
  /** Whether `/health` needs no key if other paths do. */
  readonly openHealth?: boolean;
  readonly pathPrefix?: string;
}

/** Serves the OpenAPI document: the endpoints' schemas, with facts that only the models know. */
export function document(
  app: OpenAPIHono<Env>,
  models: Models,
  { withKeys, openHealth, pathPrefix }: DocumentOptions,
): void {
  const { openAPIRegistry: registry } = app;
  if (withKeys) {
    const header = { type: "apiKey", in: "header", name: "x-api-key" } as const;
    registry.registerComponent("securitySchemes", "bearer", { type: "http", scheme: "bearer" });
    registry.registerComponent("securitySchemes", "header", header);
  }
  const config = {
    openapi: "3.1.0",
    info: { title: "compy", version: "1", description: DESCRIPTION },
    ...(pathPrefix === undefined ? {} : { servers: [{ url: pathPrefix }] }),
    ...(withKeys ? { security: EITHER_HEADER } : {}),
  };
  // The document is cached: generating it blocks all other requests for a tenth of a second.
  let made: { readonly facts: string; readonly text: string } | undefined;
  app.get("/doc", (c) => {
    const facts = factsOf(models);
    const key = JSON.stringify(facts);
    if (made?.facts !== key) made = { facts: key, text: JSON.stringify(make(facts)) };
    return c.body(made.text, 200, { "content-type": "application/json" });
  });

  function make({ schemas, isModelRequired }: Facts) {
    const document = app.getOpenAPI31Document(config);
    document.components!.schemas = { ...document.components?.schemas, ...schemas };
    if (isModelRequired) requireModel(document);
    if (withKeys) {
      for (const operation of operationsOf(document)) {
        const { responses, operationId } = operation;
        if (openHealth && operationId === "getHealth") {
          operation.security = [];
          continue;
        }
        // A wrong key is refused in the error format of the path's other refusals.
        responses![401] = { ...responses![400], description: "Missing or wrong API key" };
        if (operationId === "getMetrics") continue;
        const refusal = responses![403] as { description: string };
        refusal.description += ", or the API key may only read /metrics";
      }
    }
    return document;
  }
}

const EITHER_HEADER: Record<string, string[]>[] = [{ bearer: [] }, { header: [] }];

interface Facts {
  readonly schemas: Record<string, SchemaObject>;
  readonly isModelRequired: boolean;
}

/**
 * Returns the models' facts for the document. Token ids are bounded only for a single model, because it stays the same.
 */
function factsOf(models: Models): Facts {
  const offered = models.list();
  const names = offered.flatMap(({ id, aliases }) => [id, ...aliases]);
  const only = offered.length === 1 ? offered[0].engine : undefined;
  const ModelId: SchemaObject = {
    type: "string",
    ...(names.length > 0 ? { enum: names } : {}),
    description: "A model's id or alias, as /v1/models lists them",
  };
  const reference = { $ref: "#/components/schemas/ModelId" };
  const ModelChoice: SchemaObject = offered.length === 1
    ? { anyOf: [reference, { type: "null" }], description: "Default: the only model" }
    : { allOf: [reference] };
  return { schemas: { ModelId, ModelChoice, ...tokenSchemas(only) }, isModelRequired: offered.length !== 1 };
}

const MAX_INT = 2 ** 31 - 1;

function tokenSchemas(engine: Engine | undefined): Record<string, SchemaObject> {
  const last = engine ? engine.tokenizer.vocabSize - 1 : MAX_INT;
  return {
    TokenId: { type: "integer", minimum: 0, maximum: last },
    TokenIdText: { type: "string", pattern: upTo(last).source },
    Dimensions: {
      type: "integer",
      minimum: 1,
      maximum: engine?.model.pooled?.size ?? MAX_INT,
    },
    PromptText: {
      type: "string",
      minLength: engine === undefined || engine.encodePrompt("").length > 0 ? 0 : 1,
    },
  };
}

/** Makes the model a required field; for a server with several models. */
function requireModel(document: Document): void {
  for (const schema of Object.values(document.components?.schemas ?? {})) {
    if (!("properties" in schema)) continue;
    const model = schema.properties?.model;
    if (model === undefined || !("$ref" in model) || !model.$ref?.endsWith("/ModelChoice")) continue;
    schema.required = ["model", ...(schema.required ?? []).filter((name) => name !== "model")];
  }
  for (const { parameters, operationId } of operationsOf(document)) {
    // Without a model, /slots lists the slots of all models.
    if (operationId === "listSlots") continue;
    for (const parameter of parameters ?? []) {
      if ("name" in parameter && parameter.name === "model") parameter.required = true;
    }
  }
}

function operationsOf({ paths }: Document) {
  return Object.values(paths ?? {}).flatMap(({ get, post, delete: remove }) => {
    return [get, post, remove].filter((operation) => operation !== undefined);
  });
}

/** Returns a pattern for the whole numbers from 0 to `last`, in decimal digits. */
function upTo(last: number): RegExp {
  const digits = String(last);
  const ranges = Array.from(digits, (digit, i) => {
    const rest = `[0-9]{${digits.length - i - 1}}`;
    return digit === "0" || (i === 0 && digit === "1" && digits.length > 1)
      ? []
      : [`${digits.slice(0, i)}[${i === 0 && digits.length > 1 ? 1 : 0}-${Number(digit) - 1}]${rest}`];
  }).flat();
  const shorter = digits.length > 1 ? ["0", `[1-9][0-9]{0,${digits.length - 2}}`] : [];
  return new RegExp(`^(?:${[...shorter, ...ranges, digits].join("|")})$`);
}
