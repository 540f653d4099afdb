/** A worker that packs the weights that `packer.ts` sends. */
import { pack, type PackReply, type PackRequest } from "./packing.ts";

const port = globalThis as unknown as {
  onmessage: (event: MessageEvent<PackRequest>) => void;
  postMessage(reply: PackReply, transfer: Transferable[]): void;
};

port.onmessage = ({ data }) => {
  const packed = pack(data);
  port.postMessage(packed, packed.planes.map(({ buffer }) => buffer));
};
