import { testFloats } from "./checks.ts";

await testFloats("windowed mixture");
