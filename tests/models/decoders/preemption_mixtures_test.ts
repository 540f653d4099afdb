import { testPreemption } from "./checks.ts";

await testPreemption("mixture");
