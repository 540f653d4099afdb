/** The program of a worker that quantizes rows. */
import { quantizeBlocks, type QuantizeTask } from "./blocks.ts";

const scope = globalThis as unknown as {
  onmessage: (event: MessageEvent<QuantizeTask>) => void;
  postMessage(message: unknown, moved: Transferable[]): void;
};

scope.onmessage = ({ data }) => {
  const result = quantizeBlocks(data);
  scope.postMessage(result, result ? [result.bytes.buffer] : []);
};
