"""Llama 4, as Hugging Face's modeling_llama4.py has it. Prompts are shorter than a chunk, so that all layers see everything."""
import numpy as np

from llama import Llama
from model import Model, silu, sigmoid


class Llama4(Llama):
    def frequencies_of(self, layer):
        return self.frequencies if (layer + 1) % 4 else None

    def place(self, q, k, layer, start):
        q, k = self.rotate(q, start, layer), self.rotate(k, start, layer)
        if self.frequencies_of(layer) is None or self.key("expert_count") == 128:
            return q, k
        return [x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) for x in (q, k)]

    def temperature(self, positions, layer):
        grown = 1 + 0.1 * np.log1p((positions + 1) // 8192)
        return grown if self.frequencies_of(layer) is None else np.ones(len(positions))

    def feed_forward(self, x, name, suffix=""):
        if suffix or f"{name}.ffn_gate_inp.weight" not in self.weights:
            return Model.feed_forward(self, x, name, suffix)
        logits = self.linear(x, f"{name}.ffn_gate_inp")
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out = self.feed_forward(x, name, "_shexp")
        for row, (h, e) in enumerate(zip(x, logits.argmax(axis=-1))):
            h = h * sigmoid(logits[row, e])
            out[row] += down[e] @ (silu(gate[e] @ h) * (up[e] @ h))
        return out
