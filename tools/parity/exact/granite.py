"""Granite: Llama with multipliers, and a divisor of the logits. With windows, as Hugging Face's modeling_granite_swa.py and
modeling_granitemoe_swa.py have it: what a head has read is times sigmoid(logsumexp(scores) - its sink)."""
import numpy as np

from llama import Llama
from model import sigmoid, softmax
from qwen3moe import Qwen3Moe


class Granite(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.scale = float(self.key("attention.scale", self.scale))
        self.residual = float(self.key("residual_scale"))

    def embed(self, tokens):
        return super().embed(tokens) * float(self.key("embedding_scale"))

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.residual * self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + self.residual * self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)

    def logits(self, rows):
        return super().logits(rows) / float(self.key("logit_scale"))


class GraniteMoe(Granite):
    """Experts in place of the feed-forward, and one that takes all rows where the file has it."""

    def feed_forward(self, x, name):
        chosen = Qwen3Moe.feed_forward(self, x, name)
        if f"{name}.ffn_gate_shexp.weight" not in self.weights:
            return chosen
        return chosen + super().feed_forward(x, name, "_shexp")


class GraniteSwa(GraniteMoe):
    """Dense, or with experts, whose gates stand above what they gate in one matrix."""

    def __init__(self, reader, context):
        super().__init__(reader, context)
        for name in [name for name in self.weights if name.endswith("ffn_gate_up_exps.weight")]:
            self.part(name, name.replace("gate_up", "gate"), name.replace("gate_up", "up"))
        for name in [name for name in self.weights if name.endswith("ffn_up_shexp.weight")]:
            self.part(name, name.replace("up", "gate"), name)

    def part(self, both, gate, up):
        self.weights[gate], self.weights[up] = np.split(self.weights[both], 2, axis=-2)

    def window(self, layer):
        return self.key("attention.sliding_window") if self.key("attention.sliding_window_pattern")[layer] else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.key("attention.rope_pattern")[layer] else None

    def attention_weights(self, scores, layer):
        sinks = self.weights[f"blk.{layer}.attn_sinks.weight"].reshape(*scores.shape[:2], 1)
        most = scores.max(axis=-1)
        total = most + np.log(np.exp(scores - most[..., None]).sum(axis=-1))
        return softmax(scores) * sigmoid(total - sinks)[..., None]

    def feed_forward(self, x, name):
        return super().feed_forward(x, name) if self.key("expert_count", 0) else Llama.feed_forward(self, x, name)
