import { testFloats } from "./checks.ts";

await testFloats("mixture");
