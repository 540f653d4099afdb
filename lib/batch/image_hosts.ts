/** Images at https URLs, for compy's own commands. */
export { type FetchImage, imageFetcher } from "../../routes/generation/fetch_image.ts";
