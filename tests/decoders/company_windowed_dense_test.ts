import { testCompany } from "./checks.ts";

await testCompany("windowed dense");
