import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Engine } from "../engine/types.ts";
import type { Env } from "./shared/context.ts";

const DESCRIPTION =
  "The OpenAI API over one GGUF model. Every answer has an x-request-id. A path answers other " +
  "methods than those listed with 405 and an Allow header.";

/** Serves the OpenAPI document: what the endpoints say of themselves, and what only the loaded model can say. */
export function document(app: OpenAPIHono<Env>, engine: Engine, withKeys: boolean): void {
  const { openAPIRegistry: registry } = app;
  const last = engine.tokenizer.vocabSize - 1;
  registry.registerComponent("schemas", "ModelId", {
    type: "string",
    enum: [engine.model.id],
    description: "The model's id, as /v1/models lists it",
  });
  registry.registerComponent("schemas", "TokenId", { type: "integer", minimum: 0, maximum: last });
  registry.registerComponent("schemas", "TokenIdText", { type: "string", pattern: upTo(last).source });
  registry.registerComponent("schemas", "PromptText", {
    type: "string",
    minLength: engine.encodePrompt("").length > 0 ? 0 : 1,
  });
  if (withKeys) registry.registerComponent("securitySchemes", "key", { type: "http", scheme: "bearer" });
  const config = {
    openapi: "3.1.0",
    info: { title: "compy", version: "1", description: DESCRIPTION },
    ...(withKeys ? { security: [{ key: [] }] } : {}),
  };
  // Making it takes a tenth of a second, in which nobody else is answered.
  let made: string | undefined;
  app.get("/doc", (c) => {
    made ??= JSON.stringify(make());
    return c.body(made, 200, { "content-type": "application/json" });
  });

  function make() {
    const document = app.getOpenAPI31Document(config);
    if (withKeys) {
      for (const { responses } of operationsOf(document)) {
        // A wrong key is refused in the shape of all refusals there.
        responses![401] = { ...responses![400], description: "Missing or wrong API key" };
      }
    }
    return document;
  }
}

function operationsOf({ paths }: ReturnType<OpenAPIHono["getOpenAPI31Document"]>) {
  return Object.values(paths ?? {}).flatMap(({ get, post, delete: remove }) => {
    return [get, post, remove].filter((operation) => operation !== undefined);
  });
}

/** A pattern of the whole numbers from 0 to `last`, in digits. */
export function upTo(last: number): RegExp {
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
