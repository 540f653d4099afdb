import { testDecoders } from "./checks.ts";

await testDecoders("dense");
