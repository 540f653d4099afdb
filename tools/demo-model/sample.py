"""What the trained file says, computed by the training code itself: greedy, for comparison with other programs.

    python sample.py ../../models/demo.gguf "Tell me a story." [--raw] [--tokens 200]
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from gguf import GGUFReader, dequantize

import model
import vocab


def load(path):
    """(weights, Vocab, Shape) of a file that export.py wrote."""
    reader = GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    number = lambda key: value("llama." + key)
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    shape = model.Shape(number("vocab_size"), number("embedding_length"), number("block_count"), number("attention.head_count"),
                        number("attention.head_count_kv"), number("feed_forward_length"), number("context_length"))
    weights = {t.name.removesuffix(".weight"): jnp.asarray(dequantize(t.data, t.tensor_type), jnp.float32) for t in reader.tensors}
    return weights, vocab.Vocab(merges), shape


def greedy(weights, words, shape, text, tokens):
    """The most likely continuation of `text`, up to an end token, and its ids."""
    ids, row = words.encode(text), np.zeros((1, shape.context), np.int32)
    forward, first = jax.jit(lambda row: model.forward(weights, row, row * 0, shape)), len(ids)
    for place in range(first, min(first + tokens, shape.context)):
        row[0, :place] = ids
        ids.append(int(forward(row)[0, place - 1].argmax()))
        if ids[-1] in (words.end, words.stop):
            break
    return words.decode(ids[first:]), ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--raw", action="store_true", help="continue the prompt instead of answering it")
    parser.add_argument("--tokens", type=int, default=250)
    options = parser.parse_args()
    weights, words, shape = load(options.model)
    text = options.prompt if options.raw else f"<|im_start|>user\n{options.prompt}<|im_end|>\n<|im_start|>assistant\n"
    print(greedy(weights, words, shape, text, options.tokens)[0])


if __name__ == "__main__":
    main()
