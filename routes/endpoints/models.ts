import { OpenAPIHono, z } from "@hono/zod-openapi";
import { type AppContext, type Env, jsonContent, onlyMethods } from "../shared/context.ts";
import { checkModel } from "../shared/generation.ts";
import { errorAnswer } from "../shared/answers.ts";

const model = z.object({
  id: z.string(),
  object: z.literal("model"),
  created: z.number().int(),
  owned_by: z.string(),
  meta: z.object({ n_ctx: z.number().int(), n_vocab: z.number().int() }),
}).openapi("Model");

const modelList = z.object({ object: z.literal("list"), data: z.array(model) }).openapi("ModelList");

export function modelRoutes({ engine }: AppContext) {
  const { id, created, contextLength, vocabSize } = engine.model;
  const loaded: z.output<typeof model> = {
    id,
    object: "model",
    created,
    owned_by: "compy",
    meta: { n_ctx: contextLength, n_vocab: vocabSize },
  };
  const app = new OpenAPIHono<Env>();
  app.openAPIRegistry.registerPath({
    method: "get",
    path: "/v1/models",
    summary: "List the loaded model",
    responses: { 200: { description: "The list", ...jsonContent(modelList) } },
  });
  app.get("/v1/models", (c) => c.json<z.output<typeof modelList>>({ object: "list", data: [loaded] }));
  app.all("/v1/models", onlyMethods("GET"));

  app.openAPIRegistry.registerPath({
    method: "get",
    path: "/v1/models/{model}",
    summary: "Describe one model",
    request: { params: z.object({ model: z.string() }) },
    responses: {
      200: { description: "The model", ...jsonContent(model) },
      404: { description: "No such model", ...jsonContent(errorAnswer) },
    },
  });
  app.get("/v1/models/:model{.+}", (c) => {
    checkModel(engine, c.req.param("model"));
    return c.json(loaded);
  });
  app.all("/v1/models/:model{.+}", onlyMethods("GET"));
  return app;
}
