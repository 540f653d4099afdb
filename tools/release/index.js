// Modules are evaluated in this order, so an old Node says what it lacks before anything needs that.
import "./node_version.js";
export * from "./js/mod.js";
