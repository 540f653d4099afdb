import { testDecoders } from "./checks.ts";

await testDecoders("windowed dense");
