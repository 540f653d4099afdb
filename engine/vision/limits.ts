/** Maximum bytes of an encoded image. Decoding its base64 takes a few milliseconds of the event loop. */
export const MOST_IMAGE_BYTES = 10 * 2 ** 20;
