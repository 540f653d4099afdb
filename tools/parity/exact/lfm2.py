"""LFM2, as Hugging Face's modeling_lfm2.py and modeling_lfm2_moe.py have it: short convolutions between gates, and attention where a
layer has KV heads; with experts, a router of sigmoids whose bias chooses and does not weigh."""
import numpy as np

from model import Model, sigmoid
from qwen3moe import mixture


class Lfm2(Model):
    output_norm = "token_embd_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.kv_heads = max(self.kv_heads)

    def window(self, layer):
        return self.key("attention.sliding_window", 0)

    def mix(self, x, layer, cache):
        convolves = f"blk.{layer}.shortconv.conv.weight" in self.weights
        return (self.convolution if convolves else self.attention)(x, layer, cache)

    def convolution(self, x, layer, cache):
        """C * conv(B * x). x: (tokens, width)."""
        n, name = len(x), f"blk.{layer}.shortconv"
        kernel = self.weights[f"{name}.conv.weight"]  # (channels, taps)
        taps = kernel.shape[1]
        before, behind, value = np.split(self.linear(x, f"{name}.in_proj"), 3, axis=-1)
        if cache.inputs[layer] is None:
            cache.inputs[layer] = np.zeros((taps - 1, value.shape[1]))
        inputs = np.concatenate([cache.inputs[layer], before * value])
        cache.inputs[layer] = inputs[n:]
        return self.linear(behind * sum(inputs[i:i + n] * kernel[:, i] for i in range(taps)), f"{name}.out_proj")


class Lfm2Moe(Lfm2):
    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores, bias = sigmoid(self.linear(x, f"{name}.ffn_gate_inp")), self.weights[f"{name}.exp_probs_b.bias"]
        return mixture(self, x, name, scores, bias)
