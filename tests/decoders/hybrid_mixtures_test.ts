import { testDecoders } from "./checks.ts";

await testDecoders("hybrid mixture");
