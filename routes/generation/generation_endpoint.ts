import type { z } from "@hono/zod-openapi";
import type { Engine, HeldEngine, Models, ModelUser } from "../../engine/mod.ts";
import { abortWhenLeft } from "../core/client.ts";
import type { AskedForm } from "./constraints.ts";
import { type Ability, checkAbility } from "./embedding.ts";
import { type Endpoint, endpoint, type EventsSpec } from "../core/endpoint.ts";
import { overflowOf } from "../core/context_overflow.ts";
import { type ErrorShape, OPENAI_ERRORS } from "../core/errors.ts";
import { imageSender } from "./images.ts";
import type { Prepared, Running, RunOptions } from "./generation.ts";
import { modelName } from "../core/models.ts";
import { checkBody, type ParameterOptions } from "../core/parameters.ts";
import { jsonAnswer, paced } from "../core/paced.ts";
import { eventStream } from "../core/sse.ts";

/** Options of a request without HTTP. */
export interface BeginOptions extends RunOptions, ParameterOptions {}

/** An endpoint whose answer a model computes, whole or streamed. Batches and workers also run it, without HTTP. */
export interface Generation {
  readonly url: string;
  readonly endpoint: Endpoint;
  readonly errors: ErrorShape;
  /** Checks a body as far as possible without a model. Returns the requested forms of the answer. Throws ApiError. */
  check(body: unknown, options?: ParameterOptions): AskedForm[];
  /**
   * Checks an untrusted body and takes the engine of the model that it names. Throws ApiError, ModelError, or the
   * engine's error for a refused prompt. `signal` ends the wait for a loading model.
   */
  begin(models: ModelUser, body: unknown, options: BeginOptions, signal: AbortSignal): Promise<Running>;
}

interface GenerationSpec<Request extends z.ZodType> {
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  /** OpenAPI description of a whole answer. */
  readonly description?: string;
  readonly request: Request;
  readonly answer: z.ZodType;
  /** Description of a streamed event; undefined if the answer is always whole. */
  readonly chunk?: EventsSpec;
  readonly tag?: string;
  /** The ability that the model needs; by default generation. */
  readonly ability?: Ability;
  /** Error format, if it differs from OpenAI's. */
  readonly errors?: ErrorShape;
  readonly example: z.input<Request>;
  /** Returns all forms that the request demands of parts of the answer. */
  readonly forms: (body: z.output<Request>) => AskedForm[];
  /** Returns sentences about parts of the body that the server ignores. */
  readonly warnings?: (body: z.output<Request>) => readonly string[];
  /** Prepares the request on its engine, which stays loaded meanwhile. */
  readonly prepare: (engine: Engine, body: z.output<Request>, options: RunOptions) => Promise<Prepared>;
  /** Returns the models under the API's names and with the request's keep-alive time; by default the server's own. */
  readonly modelsFor?: (models: Models, body: z.output<Request>) => ModelUser;
  /** Answers an HTTP request that needs no generation; returns undefined for others. */
  readonly instead?: (
    models: Models,
    body: z.output<Request>,
    signal: AbortSignal,
  ) => Promise<Response | undefined>;
}

const REFUSALS: Readonly<Record<number, string>> = {
  400: "A wrong or unsupported field, or a prompt longer than the context",
  404: "No such model",
  429:
    "The queue is full, or a limit of the key is reached; send the request again after `retry-after` seconds",
  503:
    "The model is being loaded again, cannot be loaded now, or the server is shutting down: `code` says which",
};
const TEXT_REFUSALS = {
  ...REFUSALS,
  422: "The answer cannot be completed so that it matches its constraint",
};

/** Builds the endpoint. A client that disconnects cancels its work. */
export function generation<Request extends z.ZodType>(spec: GenerationSpec<Request>): Generation {
  const { path, request, answer, chunk, warnings } = spec;
  const errors = spec.errors ?? OPENAI_ERRORS;
  const take = (body: unknown, options?: ParameterOptions) => checkBody(request, body, options, warnings);
  async function begin(
    models: ModelUser,
    body: z.output<Request>,
    options: RunOptions,
    signal: AbortSignal,
  ): Promise<Running> {
    const leave = options.account?.enter();
    let held: HeldEngine | undefined;
    const started = performance.now();
    const release = () => (held?.release(), leave?.());
    try {
      held = await models.use(modelName(body), { signal, priority: options.priority });
      checkAbility(held.engine, spec.ability ?? "generation");
      const loadMs = performance.now() - started;
      return { ...await spec.prepare(held.engine, body, { ...options, loadMs, signal }), release };
    } catch (error) {
      release();
      // Embeddings and rankings name the text that is too long.
      throw held && spec.ability === undefined ? overflowOf(error, held.engine) : error;
    }
  }
  return {
    url: path,
    errors,
    check: (body, options) => spec.forms(take(body, options)),
    begin: async (models, body, options, signal) =>
      await begin(models, await paced(() => take(body, options)), options, signal),
    endpoint: endpoint({
      method: "post",
      path,
      operationId: spec.operationId,
      tag: spec.tag ?? "Generation",
      summary: spec.summary,
      description: chunk ? describeStream(chunk) : spec.description,
      body: request,
      warnings: warnings as never,
      example: spec.example as never,
      content: { "application/json": answer },
      events: chunk,
      errors: spec.errors,
      answers: chunk ? "The answer, or with `stream` its events" : "The answer",
      refusals: chunk ? TEXT_REFUSALS : REFUSALS,
    }, async (incoming, context) => {
      const { body, raw, account, owner } = incoming;
      const abort = abortWhenLeft(raw);
      const responses = context.responses.of(owner);
      const options = { ...imageSender(incoming, context), account, responses };
      const asked = body as z.output<Request>;
      const other = await spec.instead?.(context.models, asked, abort.signal);
      if (other) return other;
      const models = spec.modelsFor?.(context.models, asked) ?? context.models;
      const running = await begin(models, asked, options, abort.signal);
      if (!chunk || !running.stream || !running.chunks) {
        return await jsonAnswer(await running.answer(abort.signal).finally(running.release));
      }
      const failed = (error: unknown) => {
        const answer = context.report(error);
        account.failed(answer.code);
        return answer;
      };
      const failure = running.failure ?? ((error) => [errors.body(error)]);
      const shape = { ...shapeOf(chunk), waiting: running.waiting, failure, ended: running.release };
      return await eventStream(running.chunks(abort.signal), abort, context.limits, failed, shape);
    }),
  };
}

function shapeOf({ lines = false, named = false, withoutDone = named || lines }: EventsSpec) {
  return { lines, named, done: !withoutDone };
}

function describeStream({ lines, named, withoutDone }: EventsSpec): string {
  if (lines) {
    return "The answer is JSON lines, unless `stream` is false. A failure in mid-stream is a line with an `error`, " +
      "which ends the stream.";
  }
  if (named) {
    return "With `stream` the answer is server-sent events: `event:` and a name, `data:` and an object of the stream's " +
      "schema each. A failure in mid-stream is an event named `error`; the stream ends with it or soon after.";
  }
  return "With `stream` the answer is server-sent events: `data:` and an object of the stream's schema each" +
    `${
      withoutDone ? "" : ", at last `data: [DONE]`"
    }. A failure in mid-stream is an event with an \`error\`, after which the stream ends.`;
}
