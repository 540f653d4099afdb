import { testPreemption } from "./checks.ts";

await testPreemption("dense", "windowed dense");
