import { testCompany } from "./checks.ts";

await testCompany("hybrid mixture");
