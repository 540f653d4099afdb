/** The program of a worker that quantizes rows. */
import { type QuantizeTask, tryQuantize } from "./blocks.ts";

const scope = globalThis as unknown as {
  onmessage: (event: MessageEvent<QuantizeTask>) => void;
  postMessage(message: unknown, moved: Transferable[]): void;
};

scope.onmessage = ({ data }) => {
  const outcome = tryQuantize(data);
  scope.postMessage(outcome, outcome.rows ? [outcome.rows.bytes.buffer] : []);
};
