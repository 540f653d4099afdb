import { testPreemption } from "./checks.ts";

await testPreemption("windowed mixture");
