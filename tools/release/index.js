// Modules are evaluated in this order, so an old Node says what it lacks before anything needs that.
import "./node_version.js";
// @ts-ignore: the release makes this file.
export * from "./js/mod.js";
