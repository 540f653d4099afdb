"""Trains the demo model from nothing and writes it as a GGUF file.

    python train.py --out ../../models/demo.gguf
"""
import argparse
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import numpy as np

import export
import grammar
import hybrid
import model
import vocab
import world

ROW_TOKENS, BATCH_TOKENS = (256, 512), 2048
VOCAB_DOCUMENTS = 6000


def _pack(pool, row_tokens):
    """One batch (tokens, segments, say) of (rows, row tokens) from the longest documents first; takes them out of `pool`."""
    tokens = np.zeros((BATCH_TOKENS // row_tokens, row_tokens), np.int32)
    segments, say, used = np.full_like(tokens, -1), np.zeros(tokens.shape, np.float32), np.zeros(len(tokens), np.int32)
    pool.sort(key=lambda document: -len(document[0]))
    for document in list(pool):
        ids, weight = document
        fits = np.flatnonzero(used + len(ids) <= row_tokens)
        if len(fits):
            row, place = fits[0], slice(used[fits[0]], used[fits[0]] + len(ids))
            tokens[row, place], segments[row, place], say[row, place] = ids, place.start, weight
            say[row, place.start] = 0  # nothing foretells a document's first token
            used[row] = place.stop
            pool.remove(document)
    return tokens, segments, say


def batches(words, seed):
    """Batches without end, of whole documents; long documents get long rows."""
    rng, pools = world.seeded(seed), {row_tokens: [] for row_tokens in ROW_TOKENS}
    while True:
        ids, say = [], []
        for text, weight in grammar.document(rng):
            part = words.encode(text)
            ids += part
            say += [weight] * len(part)
        row_tokens = next((n for n in ROW_TOKENS if len(ids) <= n), None)
        if row_tokens:
            pool = pools[row_tokens]
            pool.append((ids, say))
            if sum(len(ids) for ids, _ in pool) > 2.5 * BATCH_TOKENS:
                yield _pack(pool, row_tokens)


def schedule(step, steps):
    return min(1, step / 40) * min(1, (steps - step) / (0.75 * steps) + 0.005)


def train(network, words, shape, steps, seed, keep):
    """Trains from nothing; `keep` gets the weights every 200 steps and at the end, so that a stopped run leaves something."""
    weights = network.init(shape, seed)
    state = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}

    @jax.jit
    def one_step(weights, state, batch, step, rate):
        value, grads = jax.value_and_grad(network.loss)(weights, batch, shape)
        return *model.update(weights, state, grads, step, rate), value

    start, losses = time.time(), []
    for step, batch in zip(range(1, steps + 1), batches(words, seed)):
        weights, state, value = one_step(weights, state, batch, step, schedule(step, steps))
        losses.append(float(value))
        if step % 50 == 0 or step == 1:
            print(f"step {step} loss {np.mean(losses[-50:]):.4f} {time.time() - start:.0f} s", flush=True)
        if step % 200 == 0 or step == steps:
            keep({name: np.asarray(w) for name, w in weights.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--hybrid", action="store_true", help="train hybrid.py's network")
    parser.add_argument("--layers", type=int, help="of the network, without the one that drafts; of the hybrid every fourth is of attention")
    options = parser.parse_args()
    network = hybrid if options.hybrid else model
    rng, shape = world.seeded(options.seed), network.Shape(**({"layers": options.layers} if options.layers else {}))
    texts = ("".join(text for text, _ in grammar.document(rng)) for _ in range(VOCAB_DOCUMENTS))
    words = vocab.train(texts, shape.vocab)
    train(network, words, shape, options.steps, options.seed, lambda weights: export.write(options.out, weights, words, shape))
    print(f"{options.out}: {os.path.getsize(options.out)} bytes")


if __name__ == "__main__":
    main()
