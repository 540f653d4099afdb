import { testFloats } from "./checks.ts";

await testFloats("dense", "windowed dense");
