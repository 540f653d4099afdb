"""gpt-oss: sinks, windows in every second layer, YaRN, and experts with biases and a clamped SwiGLU (arXiv 2508.10925)."""
import numpy as np

from model import Model, sigmoid, softmax


def yarn(rotated, base, factor, original, fast=32, slow=1):
    """Angles a position, and what cosine and sine are multiplied by (arXiv 2309.00071), whose borders llama.cpp rounds."""
    pairs = np.arange(rotated // 2)
    angles = base ** (-2 * pairs / rotated)
    border = lambda turns: rotated * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))
    low, high = max(0, np.floor(border(fast))), min(rotated - 1, np.ceil(border(slow)))
    stretched = np.clip((pairs - low) / max(0.001, high - low), 0, 1)
    return angles * (1 - stretched) + angles / factor * stretched, 0.1 * np.log(factor) + 1


class GptOss(Model):
    feed_forward_norm = "post_attention_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        base, factor = float(self.key("rope.freq_base")), float(self.key("rope.scaling.factor"))
        original = self.key("rope.scaling.original_context_length")
        self.frequencies, self.magnitude = yarn(self.rotated, base, factor, original)

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 2 == 0 else 0

    def attention_weights(self, scores, layer):
        """A sink a head takes part in the softmax, and has no value."""
        sinks = self.weights[f"blk.{layer}.attn_sinks.weight"].reshape(*scores.shape[:2], 1, 1)
        with_sinks = np.concatenate([scores, np.broadcast_to(sinks, (*scores.shape[:3], 1))], axis=-1)
        return softmax(with_sinks)[..., :-1]

    def feed_forward(self, x, name):
        logits, out = self.linear(x, f"{name}.ffn_gate_inp"), np.zeros_like(x)
        tensor = lambda part, kind: self.weights[f"{name}.ffn_{part}_exps.{kind}"]
        for row, (h, logit) in enumerate(zip(x, logits)):
            chosen = np.argsort(-logit, kind="stable")[:self.key("expert_used_count")]
            for expert, weight in zip(chosen, softmax(logit[chosen])):
                gate = np.minimum(tensor("gate", "weight")[expert] @ h + tensor("gate", "bias")[expert], 7)
                up = np.clip(tensor("up", "weight")[expert] @ h + tensor("up", "bias")[expert], -7, 7)
                inner = gate * sigmoid(1.702 * gate) * (up + 1)
                out[row] += weight * (tensor("down", "weight")[expert] @ inner + tensor("down", "bias")[expert])
        return out
